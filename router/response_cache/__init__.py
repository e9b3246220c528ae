"""The cache of answers, as engines have yielded them, by all that they depend on; may import contract, engine, errors,
metrics, scheduling, store and system.arguments."""
