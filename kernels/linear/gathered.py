"""Weights whose inputs are held in another order than the one that they come in."""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.linear import PackedWeight


@dataclass(frozen=True, slots=True)
class GatheredWeight(PackedWeight):
    """Input k of `weight` is input order[k] of this one."""

    weight: PackedWeight
    order: Tensor                        # int64 [K]

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        return self.weight.multiply(x[:, self.order], bias, out_dtype)

    def apart(self, x: Tensor) -> Tensor:
        return self.weight.apart(x[:, self.order])

    def rows(self, ids: Tensor) -> Tensor:
        return self.weight.rows(ids)[:, torch.argsort(self.order)]


def gathered(weight: PackedWeight, order: Tensor | None) -> PackedWeight:
    """Puts the inputs of a weight, which is packed in this order, back into theirs; None is their own."""
    if order is None:
        return weight
    return GatheredWeight(weight.out_features, weight.in_features, weight.segments, weight.dtype, weight,
                          order.to(dispatch.device()))
