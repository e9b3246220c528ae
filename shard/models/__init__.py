"""A checkpoint's configuration and family, and the decoder that they make; may import communication, kernels, system
and weights."""
