"""A mixture of experts on a GPU: the ops of reference.py, which here are the GPU's."""

from penstock.kernels.experts.reference import experts, prepare

__all__ = ["experts", "prepare"]
