"""Measures Penstock's engine without HTTP, and vLLM's and llama.cpp's beside it; it may import router and shard."""
