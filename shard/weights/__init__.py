"""A checkpoint's tensors, how its linears are stored, and the part that a rank reads; it imports `kernels` and
`shard.communication`."""
