"""Measures vectors of texts beside sentence-transformers, ONNX Runtime and llama.cpp; may import checkpoints, load,
programs, server and shard."""
