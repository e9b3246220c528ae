"""The files that quantised weights are written in; may import kernels, quantization and shard."""
