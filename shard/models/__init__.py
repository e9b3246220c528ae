"""A checkpoint's configuration and family, and the decoder that they make; may import communication, kernels, layers,
system and weights."""
