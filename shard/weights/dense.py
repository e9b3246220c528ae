"""Weights that are stored as plain numbers, in the tensor NAME.weight [out_features, in_features]."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.linear import PackedWeight, pack
from penstock.kernels.linear.tiled import pack_tiled
from penstock.shard.weights.format import LinearPart, WeightFormat
from penstock.shard.weights.stored import Entry, StoredTensor


class Dense:
    """The format of checkpoints that are not quantised."""

    def __init__(self, in_tiles: bool = False) -> None:
        """in_tiles: whether weights are multiplied in the processor's tiles"""
        self._in_tiles = in_tiles

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        place = part.place
        shape, slices = (part.out_features, part.in_features), (part.rows, part.columns)
        if place.is_transposed:
            shape, slices = shape[::-1], slices[::-1]
        leading, own = place.leading
        return (StoredTensor(linear if place.is_bare else f"{linear}.weight", leading + shape, own + slices),)

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        weights = [weight_of(stored, part) for (stored,), part in zip(linears, parts, strict=True)]
        return (pack_tiled if self._in_tiles else pack)(stack(weights, dtype), segments)

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        return entry.num_elements * dtype.itemsize


DENSE = Dense()
DENSE_IN_TILES = Dense(in_tiles=True)


def dense_everywhere(linear: str) -> WeightFormat:
    """Returns the dense format, whatever the linear is called."""
    return DENSE


def weight_of(stored: Tensor, part: LinearPart) -> Tensor:
    """Returns a part of a weight [outputs, inputs], of what was read for it."""
    weight = stored[0] if part.place.count else stored
    return weight.t() if part.place.is_transposed else weight


def stack(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Copies tensors one below the other in another dtype, straight to where the kernels want them."""
    heights = [len(tensor) for tensor in tensors]
    stacked = torch.empty(sum(heights), *tensors[0].shape[1:], dtype=dtype, device=dispatch.device())
    for tensor, target in zip(tensors, torch.split(stacked, heights), strict=True):
        target.copy_(tensor)
    return stacked
