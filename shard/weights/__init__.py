"""A checkpoint's tensors, each rank's part of them, and the formats that they are stored in; may import communication,
kernels and system."""
