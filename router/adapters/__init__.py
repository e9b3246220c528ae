"""Adapters (LoRA): their names, their files, and the numbers by which shards know them; may import
checkpoints, errors and system."""
