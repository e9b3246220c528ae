"""Grouped-query attention (Ainslie et al. 2023), split over the ranks by heads."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.activation import Activation, activate_gate
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.full_attention import full_attention
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import paged_attention
from penstock.kernels.rope import rope
from penstock.kernels.rope_kv_write import rope_kv_write
from penstock.shard.layers.head_norms import read_head_norms
from penstock.shard.layers.heads import OwnHeads, qkv_parts
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import Qkv
from penstock.shard.weights.rank_weights import RankWeights


class Attention:
    """Lets the tokens of a sequence see each other."""

    def __init__(
        self, config: ModelConfig, weights: RankWeights, names: BlockNames, index: int, rotary: Rotary | None
    ) -> None:
        """Reads its slice of the weights. index: of the block, counted from 0; rotary: None if it does not rotate."""
        attention, group = config.attention, weights.group
        own = OwnHeads.of(attention, group.rank, group.world_size)
        parts = qkv_parts(attention, own, names, config.hidden_size, config.place)
        self.qkv = ColumnParallel(weights, parts, attention.qkv_bias, takes_adapters=True)
        self.head_norms = read_head_norms(attention, config.head_norm, weights, names.q_norm, names.k_norm)
        self.output = RowParallel(weights, names.attention_output, attention.num_heads * attention.head_dim,
                                  config.hidden_size, attention.output_bias, config.place,
                                  own.outputs(attention, group.rank, group.world_size), takes_adapters=True)
        self.rotary = rotary
        self.is_interleaved = attention.is_interleaved
        self.num_heads = len(own.heads)
        self.num_kv_heads = len(own.kv_heads)
        self.head_dim = attention.head_dim
        self.scale = attention.scale
        self.is_causal = attention.is_causal
        # Tokens that each sees, itself included, or to each of its sides if tokens see those behind them; 0 for all.
        self.window = attention.windows[index]
        self.softcap = attention.softcap
        self.clip = attention.clip
        self.is_gated = attention.qkv is Qkv.GATED
        self.sinks = None
        if attention.has_sinks:
            sinks = weights.whole(names.sinks, attention.num_heads, dtype=torch.float32)
            self.sinks = sinks[own.heads.start:own.heads.stop].contiguous()
        self.slopes = _slopes(attention.num_heads, own.heads) * attention.alibi if attention.alibi else None

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: KvCache | None) -> Tensor:
        """Returns the output of attention for each token of x [T, C], [T, C]. cache: None if it is not causal"""
        heads = self.qkv(x, metadata.adapters).view(len(x), -1, self.head_dim)
        gates = self.num_heads if self.is_gated else 0
        q, k, v, gate = torch.split(heads, [self.num_heads, self.num_kv_heads, self.num_kv_heads, gates], dim=1)
        if self.head_norms:
            q, k = (norm(part) for part, norm in zip((q, k), self.head_norms, strict=True))
        if self.clip:
            q, k, v = (part.clamp(-self.clip, self.clip) for part in (q, k, v))
        if cache is None:
            return self._among_all(q, k, v, metadata)
        if self.rotary is None:
            kv_write(k, v, cache, metadata.slot_mapping)
        else:
            q = rope_kv_write(q, k, v, self.rotary.cos, self.rotary.sin, metadata.positions, self.is_interleaved, cache,
                              metadata.slot_mapping)
        attended = paged_attention(
            q, cache, metadata.tables, metadata.starts, metadata.counts, scale=self.scale, window=self.window,
            softcap=self.softcap, sinks=self.sinks, slopes=self.slopes, is_decode=metadata.is_decode)
        if self.is_gated:
            gate_and_up = torch.cat([gate.flatten(1), attended.flatten(1)], dim=1)
            return self.output(activate_gate(gate_and_up, Activation.SIGMOID), metadata.adapters)
        return self.output(attended.flatten(1), metadata.adapters)

    def _among_all(self, q: Tensor, k: Tensor, v: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Returns the output where the tokens of a text all see one another."""
        if self.rotary is not None:
            q, k = rope(q, k, self.rotary.cos, self.rotary.sin, metadata.positions, self.is_interleaved)
        attended = full_attention(q, k, v, metadata.counts, scale=self.scale, window=self.window)
        return self.output(attended.flatten(1), metadata.adapters)


def _slopes(num_heads: int, own: range) -> Tensor:
    """Returns ALiBi's slopes of these heads, float32 (Press et al. 2021): 2^(-8 i / H) for head i of H, counted from 1.

    Where H is no power of 2, the heads beyond the largest one below it have every other slope of twice as many.
    """
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    slopes += [2 ** (-4 * (2 * head + 1) / power) for head in range(num_heads - power)]
    return torch.tensor(slopes[own.start:own.stop], dtype=torch.float32, device=dispatch.device())
