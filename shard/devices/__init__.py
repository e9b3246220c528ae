"""Processors and GPUs as the shard uses them: threads, memory, uploads and downloads; may import config, kernels and
system."""
