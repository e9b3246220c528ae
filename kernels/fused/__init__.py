"""Halves of a decoder's block, and all its blocks, each in one call of csrc/layers.cpp: they give the bits of the ops
one after the other, without the way through Python between them. Like the ops, they import only kernels."""

from penstock.kernels import dispatch


def is_available() -> bool:
    """Tells whether this process has fused kernels, which only the processor's compiled set does."""
    return dispatch.kernel_set() == "cpu"
