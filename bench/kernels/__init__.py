"""Measures single kernels of the processor's beside torch's; it imports nothing of router and shard."""
