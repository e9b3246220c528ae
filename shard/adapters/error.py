"""Why an adapter can't be loaded."""


class AdapterError(ValueError):
    """An adapter that the model can't use: says in a sentence which file, and what is wrong with it."""
