"""Linear layers that are split over the ranks, by their outputs or by their inputs.

At world size 1 both are plain linears and nothing is exchanged.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.linear import linear
from penstock.shard.communication.own_inputs import OwnInputs
from penstock.shard.weights.format import LinearPart, Place
from penstock.shard.weights.rank_weights import RankWeights


class ColumnParallel:
    """Linears of the same input side by side (q, k, v; gate, up), each with its outputs split over the ranks."""

    def __init__(self, weights: RankWeights, parts: Sequence[tuple[str, LinearPart]], has_bias: bool) -> None:
        """Reads its slice of the weights. parts: the names of linears, and what it has of each, all of its inputs."""
        self.bias = weights.biases(parts) if has_bias else None
        self.weight = weights.linears(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiplies x [T, in_features], the same on every rank, into this rank's outputs of each linear."""
        return linear(x, self.weight, self.bias)


class RowParallel:
    """A linear whose inputs are split over the ranks: each adds its own products, and the sums meet in a fixed tree."""

    def __init__(
        self, weights: RankWeights, name: str, in_features: int, out_features: int, has_bias: bool, place: Place,
        own: OwnInputs | None = None
    ) -> None:
        """own: this rank's inputs, if they are not its part of an inner width"""
        self.bias = weights.whole(f"{name}.bias", out_features) if has_bias else None
        self._group = weights.group
        own = own or weights.own_inner(in_features)
        self.weight = weights.row_parallel(name, out_features, in_features, own, place)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiplies x [T, this rank's share of in_features] into [T, out_features], the same bits on every rank."""
        out = linear(x, self.weight, None if self.is_partial else self.bias, partial=self.is_partial)
        return self.join(out, x.dtype)

    @property
    def is_partial(self) -> bool:
        """Tells whether a rank's products are only a part of the sum, which `join` makes whole."""
        return self._group.world_size > 1

    def join(self, out: Tensor, dtype: torch.dtype) -> Tensor:
        """Makes whole what the kernels computed of this rank's inputs, [T, out_features]: every rank has the same bits.
        `out` may be overwritten."""
        if not self.is_partial:
            return out
        total = self._group.sum(out)
        if self.bias is not None:
            total = total + self.bias
        return total.to(dtype)
