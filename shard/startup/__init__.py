"""The way from settings to a shard that can run steps; may import communication, config, contract, devices,
execution, kernels, layers, models, process, progress, serving, system, telemetry and weights."""
