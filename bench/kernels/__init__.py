"""Measures single kernels of the processor's beside torch's; may import kernels."""
