"""Weights that are stored as plain numbers, in the tensor NAME.weight [out_features, in_features]."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.linear import PackedWeight, pack
from penstock.shard.weights.format import LinearPart, WeightFormat
from penstock.shard.weights.stored import Entry, StoredTensor


class Dense:
    """The format of checkpoints that are not quantised."""

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        shape = part.out_features, part.in_features
        return (StoredTensor(f"{linear}.weight", shape, (part.rows, part.columns)),)

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        return pack(stack([weight for (weight,) in linears], dtype), segments)

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        return entry.num_elements * dtype.itemsize


class Transposed(Dense):
    """The format of checkpoints that store weights as [in_features, out_features]."""

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        shape = part.in_features, part.out_features
        return (StoredTensor(f"{linear}.weight", shape, (part.columns, part.rows)),)

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        return super().pack([[weight.t()] for (weight,) in linears], parts, segments, dtype)


DENSE = Dense()
TRANSPOSED = Transposed()


def dense_everywhere(linear: str) -> WeightFormat:
    """Returns the dense format, whatever the linear is called."""
    return DENSE


def transposed_but(*layers: str) -> Callable[[str], WeightFormat]:
    """Returns the function that tells the transposed format of all linears but those of these names, or of the ends
    that they have in checkpoints without the model's base name."""
    return lambda linear: DENSE if any(f".{layer}".endswith(f".{linear}") for layer in layers) else TRANSPOSED


def stack(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Copies tensors one below the other in another dtype, straight to where the kernels want them."""
    heights = [len(tensor) for tensor in tensors]
    stacked = torch.empty(sum(heights), *tensors[0].shape[1:], dtype=dtype, device=dispatch.device())
    for tensor, target in zip(tensors, torch.split(stacked, heights), strict=True):
        target.copy_(tensor)
    return stacked
