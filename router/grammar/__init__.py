"""Structured output, from what a client asks for to the masks of the next tokens; may import checkpoints, errors,
scheduling and system."""
