"""Linear layers that are split over the ranks, by their outputs or by their inputs.

At world size 1 both are plain linears and nothing is exchanged.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.linear import linear
from penstock.shard.weights.format import LinearPart, Place
from penstock.shard.weights.rank_weights import RankWeights

NUM_SEGMENTS = 8  # of the inputs of a RowParallel over the whole group


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
        self, weights: RankWeights, name: str, in_features: int, out_features: int, has_bias: bool, place: Place
    ) -> None:
        self.bias = weights.whole(f"{name}.bias", out_features) if has_bias else None
        self._group = weights.group
        segments = segments_of(in_features, weights.group.world_size)
        self.weight = weights.row_parallel(name, out_features, in_features, segments, place)

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


def segments_of(in_features: int, world_size: int) -> int:
    """Returns in how many segments a rank sums its inputs. Without whole ones the ranks still add in one order, but
    another number of ranks adds in another."""
    return num_own_segments(in_features, world_size) or 1


def num_own_segments(in_features: int, world_size: int) -> int:
    """Returns how many of the 8 segments one rank owns; 0 if they cannot be dealt out whole and of one length."""
    return 0 if NUM_SEGMENTS % world_size or in_features % NUM_SEGMENTS else NUM_SEGMENTS // world_size
