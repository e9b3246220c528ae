"""Linear layers that are split over the ranks, by their outputs or by their inputs.

At world size 1 both are plain linears and nothing is exchanged.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.linear import linear
from penstock.kernels.lora import AdapterRows, expand, shrink
from penstock.shard.communication.own_inputs import OwnInputs
from penstock.shard.weights.format import LinearPart, Place
from penstock.shard.weights.rank_weights import RankWeights


class ColumnParallel:
    """Linears of the same input side by side (q, k, v; gate, up), each with its outputs split over the ranks."""

    def __init__(
        self, weights: RankWeights, parts: Sequence[tuple[str, LinearPart]], has_bias: bool,
        takes_adapters: bool = False,
    ) -> None:
        """Reads its slice of the weights. parts: the names of linears, and what it has of each, all of its inputs."""
        self.bias = weights.biases(parts) if has_bias else None
        self.weight = weights.linears(parts)
        self.site = weights.sites.add(parts) if takes_adapters else None

    def __call__(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Multiplies x [T, in_features], the same on every rank, into this rank's outputs of each linear."""
        return linear(x, self.weight, self.bias, delta=delta_of(x, adapters, self.site, self.weight.out_features))


class RowParallel:
    """A linear whose inputs are split over the ranks: each adds its own products, and the sums meet in a fixed tree."""

    def __init__(
        self, weights: RankWeights, name: str, in_features: int, out_features: int, has_bias: bool, place: Place,
        own: OwnInputs | None = None, takes_adapters: bool = False,
    ) -> None:
        """own: this rank's inputs, if they are not its part of an inner width"""
        self.bias = weights.whole(f"{name}.bias", out_features) if has_bias else None
        self._group = weights.group
        own = own or weights.own_inner(in_features)
        self.weight = weights.row_parallel(name, out_features, in_features, own, place)
        self.site = None
        if takes_adapters:
            part = LinearPart(out_features, in_features, slice(0, out_features), own.part, place)
            self.site = weights.sites.add([(name, part)], len(own.segments), max(own.lengths))

    def __call__(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Multiplies x [T, this rank's share of in_features] into [T, out_features], the same bits on every rank."""
        if not self.is_partial:
            delta = delta_of(x, adapters, self.site, self.weight.out_features)
            return linear(x, self.weight, self.bias, delta=delta)
        out = linear(x, self.weight, partial=True)
        return self.join(out, x.dtype, adapters, shrunk_of(x, adapters, self.site))

    @property
    def is_partial(self) -> bool:
        """Tells whether a rank's products are only a part of the sum, which `join` makes whole."""
        return self._group.world_size > 1

    def room_for(self, adapters: AdapterRows | None, num_rows: int) -> Tensor | None:
        """Returns where fused kernels put what adapters' A make of this rank's inputs; None if that is not exchanged.
        """
        if not self.is_partial or adapters is None or self.site is None or not adapters.rank(self.site):
            return None
        return torch.empty(num_rows, adapters.rank(self.site))

    def join(
        self, out: Tensor, dtype: torch.dtype, adapters: AdapterRows | None = None, shrunk: Tensor | None = None
    ) -> Tensor:
        """Completes the sums that the kernels computed of this rank's inputs, [T, out_features]: every rank has the
        same bits. `out` may be overwritten. shrunk: what adapters' A made of these inputs, whose sums travel with the
        others."""
        if not self.is_partial:
            return out
        if adapters is None or shrunk is None or self.site is None:
            total = self._group.sum(out)
        else:
            both = self._group.sum(torch.cat([out.view(-1), shrunk.view(-1)]))
            sums, reduced = torch.split(both, [out.numel(), shrunk.numel()])
            total = sums.view(out.shape) + expand(reduced.view(shrunk.shape), adapters, self.site, out.shape[1])
        if self.bias is not None:
            total = total + self.bias
        return total.to(dtype)


def shrunk_of(x: Tensor, adapters: AdapterRows | None, site: int | None) -> Tensor | None:
    """Returns the products of x and the adapters' A at a site; None if no row of the step has anything there."""
    if adapters is None or site is None or not adapters.rank(site):
        return None
    return shrink(x, adapters, site)


def delta_of(x: Tensor, adapters: AdapterRows | None, site: int | None, out_features: int) -> Tensor | None:
    """Returns the terms that adapters add to the product of x at a site, float32 [T, out_features]; None if there are
    none."""
    shrunk = shrunk_of(x, adapters, site)
    if adapters is None or site is None or shrunk is None:
        return None
    return expand(shrunk, adapters, site, out_features)
