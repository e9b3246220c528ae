"""GGUF files, and the files of a checkpoint that are made of their metadata; may import
checkpoints.tokenizers and system."""
