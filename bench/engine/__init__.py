"""Measures Penstock's engine without HTTP, and vLLM's and llama.cpp's beside it; may import bench.load,
bench.programs, kernels, quantization, router, shard and system."""
