"""Adapters (LoRA) in PEFT's files, and those that a shard has loaded; may import kernels, system and weights."""
