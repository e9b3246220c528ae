"""The exchanges between the ranks of a group; may import kernels and system."""
