"""One step, from the rows of a plan to their tokens; may import adapters, communication, config, contract, devices,
fallback, kernels, layers, models, pooling, progress, system and weights."""
