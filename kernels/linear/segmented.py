"""Weights whose segments are not all of one length."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight


@dataclass(frozen=True, slots=True)
class SegmentedWeight(PackedWeight):
    """Each segment with inputs is a weight of its own; the sums of the others, which come last, are zeros."""

    parts: tuple[PackedWeight, ...]

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        sums = self.apart(x)
        while len(sums) > 1:
            sums = sums[0::2] + sums[1::2]
        return (sums[0] if bias is None else sums[0] + bias).to(out_dtype)

    def apart(self, x: Tensor) -> Tensor:
        sums = torch.zeros(self.segments, len(x), self.out_features, dtype=torch.float32, device=x.device)
        inputs = torch.split(x, [part.in_features for part in self.parts], dim=1)
        for total, own, part in zip(sums, inputs, self.parts, strict=False):
            total.copy_(part.multiply(own.contiguous(), None, torch.float32))
        return sums

    def rows(self, ids: Tensor) -> Tensor:
        raise ValueError(f"weight_rows: the weight {[self.out_features, self.in_features]} is in {self.segments} "
                         "segments, whose rows nothing reads")


def join(parts: Sequence[PackedWeight], segments: int) -> SegmentedWeight:
    """Puts weights of the same outputs, of one segment each, side by side as the first of so many segments."""
    first = parts[0]
    return SegmentedWeight(first.out_features, sum(part.in_features for part in parts), segments, first.dtype,
                           tuple(parts))
