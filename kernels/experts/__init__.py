"""A mixture of experts (Shazeer et al. 2017): gated feed-forward networks, of which each token has a few."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.activation import Activation
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.linear import PackedWeight


class Implementation(Protocol):
    """Says what the module of each kernel set offers."""

    def prepare(self, layer: "Experts") -> object: ...

    def experts(self, x: Tensor, ids: Tensor, weights: Tensor, layer: "Experts", out_dtype: torch.dtype) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Experts:
    """The weights of E experts; their inner widths I may differ."""

    gate_up: Sequence[PackedWeight]      # of each [2 * I, C]: of the gate and of what it gates, one below the other
    down: Sequence[PackedWeight]         # of each [N, I], in as many segments as of the others
    activation: Activation
    gate_up_bias: Tensor | None = None   # [E, 2 * I], of experts of one width
    prepared: object = field(init=False, repr=False, compare=False)  # what the kernels make of them once

    def __post_init__(self) -> None:
        """Raises ValueError for weights that do not fit together."""
        if not self.gate_up or len(self.gate_up) != len(self.down):
            raise ValueError(f"Experts: {len(self.gate_up)} weights of gates, {len(self.down)} behind them")
        first, last = self.gate_up[0], self.down[0]
        for number, (gate_up, down) in enumerate(zip(self.gate_up, self.down, strict=True)):
            found = [gate_up.out_features, gate_up.in_features, down.out_features, down.in_features, down.segments]
            expected = [2 * down.in_features, first.in_features, last.out_features, down.in_features, last.segments]
            if found != expected:
                raise ValueError(f"Experts: expert {number} has the sizes {found}, expected {expected}")
        if self.gate_up_bias is not None:
            check_tensor("Experts", "gate_up_bias", self.gate_up_bias, (len(self.down), first.out_features), *FLOATS)
            if any(gate_up.out_features != first.out_features for gate_up in self.gate_up):
                raise ValueError("Experts: there is a bias for experts of several widths")
        object.__setattr__(self, "prepared", _implementation.prepare(self))

    @property
    def segments(self) -> int:
        return self.down[0].segments


_implementation: Implementation = dispatch.choose("experts")


def experts(x: Tensor, ids: Tensor, weights: Tensor, layer: Experts, partial: bool = False) -> Tensor:
    """Returns the sum over each token's experts of what they make of it, times their weights: [T, N], dtype of x.

    x        [T, C]  float32, bfloat16 or float16
    ids      [T, k]  int32, ascending; the caller makes sure that there are such experts
    weights  [T, k]  float32
    partial  return the float32 sum of these segments, to be added to other ranks'

    Within each segment of the experts' inner widths, float32 products with the weights are added in ascending order of
    the experts; then the segments meet as those of `linear` do. So a token's bits depend on no other token, nor on the
    number of ranks. Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "experts"
    check_axes(op, "x", x, "T, C")
    check_axes(op, "ids", ids, "T, k")
    check_tensor(op, "x", x, (len(x), layer.gate_up[0].in_features), *FLOATS)
    check_tensor(op, "ids", ids, (len(x), ids.shape[1]), torch.int32)
    check_tensor(op, "weights", weights, ids.shape, torch.float32)
    return _implementation.experts(x, ids, weights, layer, torch.float32 if partial else x.dtype)
