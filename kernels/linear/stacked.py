"""Weights of several formats, one below the other, as one weight."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.linear import PackedWeight


@dataclass(frozen=True, slots=True)
class StackedWeight(PackedWeight):
    """Each part gives its own outputs of the same inputs, with the bits that it gives alone."""

    parts: tuple[PackedWeight, ...]
    compiled: Tensor | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = [memory for part in self.parts if (memory := part.compiled) is not None]
        is_compiled = len(found) == len(self.parts)
        stacked = native.stacked(self.out_features, self.in_features, self.segments, found) if is_compiled else None
        object.__setattr__(self, "compiled", stacked)

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        lengths = [part.out_features for part in self.parts]
        biases = [None] * len(lengths) if bias is None else torch.split(bias, lengths)
        return torch.cat([part.multiply(x, own_bias, out_dtype)
                          for part, own_bias in zip(self.parts, biases, strict=True)], dim=1)

    def apart(self, x: Tensor) -> Tensor:
        return torch.cat([part.apart(x) for part in self.parts], dim=2)

    def rows(self, ids: Tensor) -> Tensor:
        raise ValueError(f"weight_rows: the weight {[self.out_features, self.in_features]} is a stack of "
                         f"{len(self.parts)}, whose rows nothing reads")


def stack(weights: Sequence[PackedWeight]) -> PackedWeight:
    """Puts weights of the same inputs one below the other. Raises ValueError if their inputs or segments differ."""
    first = weights[0]
    if len(weights) == 1:
        return first
    if any((each.in_features, each.segments, each.dtype) != (first.in_features, first.segments, first.dtype)
           for each in weights):
        found = [(each.in_features, each.segments, str(each.dtype)) for each in weights]
        raise ValueError(f"stack: weights of different inputs, segments or dtypes: {found}")
    outputs = sum(each.out_features for each in weights)
    return StackedWeight(outputs, first.in_features, first.segments, first.dtype, tuple(weights))
