"""Tests of the kernels: each op against a naive computation, in awkward shapes, and the bits it promises."""
