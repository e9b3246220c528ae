"""The files that models may have in place of tokenizer.json, and the tokenizer.json that is made of them, in a process
of its own; may import checkpoints.byte_characters and system."""
