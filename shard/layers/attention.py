"""Grouped-query attention (Ainslie et al. 2023) behind its norm, split over the ranks by heads."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import paged_attention
from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.rope import rope
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.rank_weights import RankWeights

if TYPE_CHECKING:
    from penstock.shard.models.config import ModelConfig  # whose families name the layers


class Attention:
    def __init__(
        self, config: "ModelConfig", weights: RankWeights, names: BlockNames, index: int, rotary: Rotary
    ) -> None:
        """Reads its slice of the weights. index: of the block, counted from 0."""
        head_dim, world_size = config.head_dim, weights.group.world_size
        q_width, kv_width = config.num_heads * head_dim, config.num_kv_heads * head_dim
        outputs = {names.q: q_width, names.k: kv_width, names.v: kv_width}
        self.norm = weights.whole(f"{names.attention_norm}.weight", config.hidden_size)
        self.eps = config.rms_norm_eps
        self.qkv = ColumnParallel(weights, outputs, config.hidden_size, config.qkv_bias)
        self.head_norms = _head_norms(weights, names, head_dim) if config.has_head_norms else None
        self.rotary = rotary
        self.output = RowParallel(weights, names.attention_output, q_width, config.hidden_size, config.output_bias)
        self.num_heads = config.num_heads // world_size
        self.num_kv_heads = config.num_kv_heads // world_size
        self.head_dim = head_dim
        self.scale = head_dim**-0.5
        self.window = config.windows[index]  # tokens that each sees, itself included; 0 for all

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: KvCache
    ) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what the tokens get from those that they attend to, [T, C]."""
        normed, x = rms_norm(x, self.norm, self.eps, delta)
        qkv = self.qkv(normed).view(len(x), self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        q, k, v = torch.split(qkv, [self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=1)
        if self.head_norms:
            q, k = (self._norm_heads(heads, norm) for heads, norm in zip((q, k), self.head_norms, strict=True))
        q, k = rope(q, k, self.rotary.cos, self.rotary.sin, metadata.positions)
        kv_write(k, v, cache, metadata.slot_mapping)
        attended = paged_attention(
            q, cache, metadata.tables, metadata.starts, metadata.counts, scale=self.scale, window=self.window,
            is_decode=metadata.is_decode)
        return x, self.output(attended.flatten(1))

    def _norm_heads(self, x: Tensor, norm: Tensor) -> Tensor:
        """Normalises each head of x [T, H, D] by itself."""
        normed, _ = rms_norm(x.contiguous().view(-1, self.head_dim), norm, self.eps)
        return normed.view(x.shape)


def _head_norms(weights: RankWeights, names: BlockNames, head_dim: int) -> tuple[Tensor, Tensor]:
    return weights.whole(f"{names.q_norm}.weight", head_dim), weights.whole(f"{names.k_norm}.weight", head_dim)
