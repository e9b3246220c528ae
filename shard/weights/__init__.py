"""The checkpoint's tensors, and each rank's slice of them."""
