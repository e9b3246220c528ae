"""Adapters (LoRA) in PEFT's files, and those that a shard has loaded; may import checkpoints, kernels,
system and weights."""
