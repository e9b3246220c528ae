"""Weights for the tiles of a processor that has them: several times the speed of the other instructions, for many rows.

A float32 is there the sum of two bfloat16 numbers, but for 2^-17 of it, and so is each product, summed in float32. What
an encoder makes of it is as near the exact vector as float32; its bits are others than those of `pack`.
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import dispatch, native
from penstock.kernels.linear import cpu
from penstock.kernels.linear.packed_weight import DenseData
from penstock.kernels.memory import huge


@dataclass(frozen=True, slots=True)
class TiledWeight(DenseData):
    """A weight whose rows nothing reads, nor its sums apart."""

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        return cpu.linear(x, self, bias, out_dtype)

    def rows(self, ids: Tensor) -> Tensor:
        raise ValueError(f"weight_rows: the weight {[self.out_features, self.in_features]} is in tiles, whose rows "
                         "nothing reads")


SCALED = 16
"""Inputs that share a scale of a coded weight in tiles."""


def has_tiles() -> bool:
    """Tells whether this process's kernels have tiles."""
    return dispatch.kernel_set() == "cpu" and native.uses_tiles()


def pack_tiled(weight: Tensor, segments: int = 1) -> TiledWeight:
    """Prepares a dense weight [N, K] as `pack` does, for tiles."""
    data, dtype = _memory(weight, segments), native.DTYPES[weight.dtype]
    native.library.pack_tiled(weight.data_ptr(), dtype, *weight.shape, segments, data.data_ptr())
    return TiledWeight(weight.shape[0], weight.shape[1], segments, weight.dtype, data)


def pack_tiled_codes(codes: Tensor, scales: Tensor, segments: int, dtype: torch.dtype) -> TiledWeight:
    """Prepares a weight of codes, int8 [N, K], which is multiplied as codes times scales, rounded to bfloat16.

    scales  float32 [N, K / SCALED], of inputs that are side by side; segments are of whole ones
    dtype   of the model's activations
    """
    data = _memory(codes, segments)
    native.library.pack_tiled_codes(codes.data_ptr(), scales.data_ptr(), *codes.shape, segments, data.data_ptr())
    return TiledWeight(codes.shape[0], codes.shape[1], segments, dtype, data)


def _memory(weight: Tensor, segments: int) -> Tensor:
    size = ctypes.c_int64()
    native.library.packed_tiled_size(native.DTYPES[weight.dtype], *weight.shape, segments, ctypes.addressof(size))
    return huge(size.value)
