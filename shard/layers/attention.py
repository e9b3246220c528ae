"""Grouped-query attention (Ainslie et al. 2023) over the paged KV cache, split over the ranks by heads."""

import torch
from torch import Tensor

from kernels.kv_cache import KvCache
from kernels.kv_write import kv_write
from kernels.paged_attention import paged_attention
from shard.batch import StepInputs
from shard.layers.linear import ColumnParallel, RowParallel
from shard.layers.norm import HeadNorm
from shard.layers.rope import Rotary
from shard.models.config import ModelConfig
from shard.weights import RankWeights


class Attention:
    def __init__(self, config: ModelConfig, weights: RankWeights, name: str, rotary: Rotary, window: int) -> None:
        """window: tokens that each sees, itself included; 0 for all."""
        self._rotary = rotary
        self._window = window
        self._head_dim = config.head_dim
        self._scale = config.head_dim**-0.5
        q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        outputs = {f"{name}.q_proj": q_width, f"{name}.k_proj": kv_width, f"{name}.v_proj": kv_width}
        self._qkv = ColumnParallel(weights, outputs, config.hidden_size, config.qkv_bias)
        self._output = RowParallel(weights, f"{name}.o_proj", q_width, config.hidden_size, config.output_bias)
        self._q_norm = _head_norm(config, weights, f"{name}.q_norm")
        self._k_norm = _head_norm(config, weights, f"{name}.k_norm")

    def __call__(self, x: Tensor, inputs: StepInputs, cache: KvCache) -> Tensor:
        """x [T, C]: [T, C]. Writes the tokens' K and V into the cache, then attends to what the cache holds."""
        q, k, v = (self._heads(part) for part in torch.split(self._qkv(x), self._qkv.widths, dim=1))
        if self._q_norm and self._k_norm:
            q, k = self._q_norm(q), self._k_norm(k)
        q, k = self._rotary(q, k, inputs.positions)
        kv_write(k, v, cache, inputs.slot_mapping)
        attended = paged_attention(q, cache, inputs.tables, inputs.starts, inputs.counts,
                                   scale=self._scale, window=self._window)
        return self._output(attended.flatten(1))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1, self._head_dim)


def _head_norm(config: ModelConfig, weights: RankWeights, name: str) -> HeadNorm | None:
    if not config.has_head_norms:
        return None
    return HeadNorm(weights.whole(f"{name}.weight", config.head_dim), config.rms_norm_eps)
