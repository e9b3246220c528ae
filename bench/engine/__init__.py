"""Measures Penstock's engine without HTTP, and vLLM's and llama.cpp's beside it; may import batching,
checkpoints, contract, kernels, load, programs, quantization, shard and system."""
