"""A checkpoint's configuration and family, and the decoder that they make; may import checkpoints, communication,
contract, kernels, system and weights."""
