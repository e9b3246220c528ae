"""One step, from the rows of a plan to their tokens; may import communication, config, devices, fallback, kernels,
models, progress, system and weights."""
