"""Attention whose keys and values come of a latent row of each token (multi-head latent attention, DeepSeek-AI 2024),
split over the ranks by heads.

The cache has the keys and values of all heads, as any attention's has, not the row that they come of: what is computed
of them is what `Attention` computes, but they take several times the memory.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import paged_attention
from penstock.kernels.rope import rope
from penstock.shard.layers.heads import OwnHeads
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.layers.norm import read_norm
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import LatentConfig
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.rank_weights import RankWeights


class LatentAttention:
    """Lets the tokens of a sequence see each other. Every rank has the latent rows whole."""

    def __init__(
        self, config: ModelConfig, form: LatentConfig, weights: RankWeights, names: BlockNames, rotary: Rotary
    ) -> None:
        """Reads its slice of the weights."""
        attention, hidden, heads = config.attention, config.hidden_size, config.attention.num_heads
        rank, world_size = weights.group.rank, weights.group.world_size
        own = OwnHeads.of(attention, rank, world_size)
        self._form = form
        self._head_dim = attention.head_dim
        self._scale = attention.scale
        self._rotary = rotary
        self._is_interleaved = attention.is_interleaved
        latents = {names.latent: form.rank + form.turned_dim}
        self._query_norm = None
        if form.query_rank:
            latents = {names.query_latent: form.query_rank, **latents}
            self._query_norm = read_norm(config.head_norm, weights, names.query_latent_norm, form.query_rank)
        self._latents = ColumnParallel(weights, weights.all_outputs(latents, hidden), attention.qkv_bias)
        self._norm = read_norm(config.head_norm, weights, names.latent_norm, form.rank)
        self._q = ColumnParallel(weights, [_rows_of(
            names.q, heads, own, form.plain_dim + form.turned_dim, form.query_rank or hidden)], has_bias=False)
        self._kv = ColumnParallel(weights, [_rows_of(
            names.kv, heads, own, form.plain_dim + form.value_dim, form.rank)], has_bias=False)
        self._output = RowParallel(weights, names.attention_output, heads * form.value_dim, hidden,
                                   attention.output_bias, config.place, own.outputs(attention, rank, world_size))

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: KvCache) -> Tensor:
        """Returns the output of attention for each token of x [T, C], [T, C]."""
        form = self._form
        query, latent, k_turned = torch.split(self._latents(x), [form.query_rank, form.rank, form.turned_dim], dim=1)
        if self._query_norm is not None:
            x, _ = self._query_norm(query.contiguous())
        normed, _ = self._norm(latent.contiguous())
        q_plain, q_turned = self._heads(self._q(x), form.turned_dim)
        k_plain, v = self._heads(self._kv(normed), form.value_dim)
        q_turned, k_turned = rope(q_turned.contiguous(), k_turned[:, None], self._rotary.cos, self._rotary.sin,
                                  metadata.positions, self._is_interleaved)
        q = self._padded(torch.cat([q_plain, q_turned], dim=2))
        k = self._padded(torch.cat([k_plain, k_turned.expand(-1, k_plain.shape[1], -1)], dim=2))
        kv_write(k, self._padded(v), cache, metadata.slot_mapping)
        attended = paged_attention(q, cache, metadata.tables, metadata.starts, metadata.counts, scale=self._scale,
                                   is_decode=metadata.is_decode)
        return self._output(attended[:, :, :form.value_dim].flatten(1).contiguous())

    def _heads(self, x: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """Returns of each head of x what does not turn, and its last dimensions."""
        size = self._form.plain_dim
        plain, rest = torch.split(x.view(len(x), -1, size + last), [size, last], dim=2)
        return plain, rest

    def _padded(self, x: Tensor) -> Tensor:
        """Returns heads of the cache's size: zeros change neither products nor sums."""
        return pad(x, (0, self._head_dim - x.shape[2])).contiguous()


def _rows_of(name: str, heads: int, own: OwnHeads, size: int, in_features: int) -> tuple[str, LinearPart]:
    """Returns a rank's part of a linear with `size` outputs for each head."""
    rows = slice(own.heads.start * size, own.heads.stop * size)
    return name, LinearPart(heads * size, in_features, rows, slice(0, in_features))
