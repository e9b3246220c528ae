"""The norms of q and k before they are rotated."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.heads import OwnHeads
from penstock.shard.layers.norm import Norm, make_norm
from penstock.shard.models.parts import AttentionConfig, HeadNorm, NormConfig
from penstock.shard.weights.rank_weights import RankWeights


class HeadNorms(Protocol):
    """Normalises the heads of q or of k."""

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the normalised heads of x [T, H, D], in the same shape."""


class EachHead:
    """Normalises each head by itself."""

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def __call__(self, x: Tensor) -> Tensor:
        normed, _ = self.norm(x.contiguous().view(-1, x.shape[2]))
        return normed.view(x.shape)


class AllHeads:
    """Normalises all heads of a token as one row; they come from all ranks."""

    def __init__(self, norm: Norm, group: Group, owned: Sequence[range]) -> None:
        """owned: the heads of every rank; some may have the same"""
        self.norm = norm
        self._group = group
        self._own = owned[group.rank]
        self._most = max(map(len, owned))
        self._first_owners = [rank for rank, own in enumerate(owned) if own not in owned[:rank]]
        self._lengths = [len(own) for own in owned]

    def __call__(self, x: Tensor) -> Tensor:
        gathered = self._group.all_gather(pad(x, (0, 0, 0, self._most - x.shape[1])).contiguous())
        rows = torch.cat([gathered[rank, :, :self._lengths[rank]] for rank in self._first_owners], dim=1)
        normed, _ = self.norm(rows.flatten(1).contiguous())
        return normed.view(len(x), -1, x.shape[2])[:, self._own.start:self._own.stop]


def read_head_norms(
    attention: AttentionConfig, config: NormConfig, weights: RankWeights, q_norm: str, k_norm: str
) -> tuple[HeadNorms, HeadNorms] | None:
    """Makes the norms of q and of k from the checkpoint's tensors of these names, for families that have them."""
    if attention.head_norm is HeadNorm.NONE:
        return None
    owned = OwnHeads.of_all(attention, weights.group.world_size)
    return (_read(attention, config, weights, q_norm, attention.num_heads, [each.heads for each in owned]),
            _read(attention, config, weights, k_norm, attention.num_kv_heads, [each.kv_heads for each in owned]))


def _read(
    attention: AttentionConfig, config: NormConfig, weights: RankWeights, name: str, num_heads: int,
    owned: Sequence[range],
) -> HeadNorms:
    size, own = attention.head_dim, owned[weights.group.rank]
    if attention.head_norm is HeadNorm.SHARED:
        return EachHead(make_norm(config, weights.whole(f"{name}.weight", size)[None], None))
    if attention.head_norm is HeadNorm.WHOLE:
        weight = weights.whole(f"{name}.weight", num_heads * size)[None]
        return AllHeads(make_norm(config, weight, None), weights.group, owned)
    if "{head}" in name:
        weight = torch.stack([weights.whole(f"{name.format(head=head)}.weight", size) for head in own])
    else:
        weight = weights.whole(f"{name}.weight", num_heads, size)[own.start:own.stop].contiguous()
    return EachHead(make_norm(config, weight, None))
