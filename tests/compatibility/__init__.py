"""What Text Generation Inference has, and whether we have it: `python -m tests.compatibility` writes the table."""
