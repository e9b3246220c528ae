"""Ways to choose the codes of a block's weights, each from a paper; may import kernels, quantization and shard."""
