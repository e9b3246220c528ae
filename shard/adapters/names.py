"""The names of modules, as adapters and checkpoints have them."""

LEADING = ("model", "language_model", "transformer",
           "bert", "roberta", "distilbert", "mpnet", "nomic_bert", "gte", "new")
"""The prefixes that the names of modules and of a checkpoint's linears may have."""
MAX_LEADING = 3


def short(name: str) -> str:
    """Returns a module's name without what some libraries put before it, as often as they do."""
    for _ in range(MAX_LEADING):
        first, _, rest = name.partition(".")
        name = rest if rest and first in LEADING else name
    return name
