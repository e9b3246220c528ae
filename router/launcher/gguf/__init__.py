"""GGUF files, and the files of a checkpoint that are made of their metadata; may import
launcher.fields, launcher.tokenizer_files and system."""
