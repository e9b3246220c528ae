"""The norms of q and k before they are rotated."""

from typing import Protocol

import torch
from torch import Tensor

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

    def __init__(self, norm: Norm, group: Group, own: range, num_heads: int) -> None:
        self.norm = norm
        self._group = group
        self._own = own
        self._holders = max(1, len(own) * group.world_size // num_heads)  # ranks that have the same heads

    def __call__(self, x: Tensor) -> Tensor:
        gathered = self._group.all_gather(x.contiguous())[::self._holders]
        rows = gathered.permute(1, 0, 2, 3).flatten(1).contiguous()
        normed, _ = self.norm(rows)
        return normed.view(len(x), -1, x.shape[2])[:, self._own.start:self._own.stop]


def read_head_norms(
    attention: AttentionConfig, config: NormConfig, weights: RankWeights, own: OwnHeads, q_norm: str, k_norm: str
) -> tuple[HeadNorms, HeadNorms] | None:
    """Makes the norms of q and of k from the checkpoint's tensors of these names, for families that have them."""
    if attention.head_norm is HeadNorm.NONE:
        return None
    return (_read(attention, config, weights, q_norm, attention.num_heads, own.heads),
            _read(attention, config, weights, k_norm, attention.num_kv_heads, own.kv_heads))


def _read(
    attention: AttentionConfig, config: NormConfig, weights: RankWeights, name: str, num_heads: int, own: range
) -> HeadNorms:
    size = attention.head_dim
    if attention.head_norm is HeadNorm.SHARED:
        return EachHead(make_norm(config, weights.whole(f"{name}.weight", size)[None], None))
    if attention.head_norm is HeadNorm.WHOLE:
        weight = weights.whole(f"{name}.weight", num_heads * size)[None]
        return AllHeads(make_norm(config, weight, None), weights.group, own, num_heads)
    if "{head}" in name:
        weight = torch.stack([weights.whole(f"{name.format(head=head)}.weight", size) for head in own])
    else:
        weight = weights.whole(f"{name}.weight", num_heads, size)[own.start:own.stop].contiguous()
    return EachHead(make_norm(config, weight, None))
