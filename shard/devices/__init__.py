"""What a processor and a GPU need: threads, memory, uploads and downloads; may import config,
kernels and system."""
