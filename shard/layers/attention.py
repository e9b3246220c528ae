"""Grouped-query attention (Ainslie et al. 2023) over the paged KV cache, split over the ranks by heads."""

import torch
from torch import Tensor

from kernels.kv_cache import KvCache
from kernels.kv_write import kv_write
from kernels.paged_attention import paged_attention
from shard.batch import StepInputs
from shard.layers.linear import ColumnParallel, RowParallel
from shard.layers.rope import Rotary
from shard.models.config import ModelConfig
from shard.weights import RankWeights


class Attention:
    def __init__(self, config: ModelConfig, weights: RankWeights, name: str, rotary: Rotary) -> None:
        self._rotary = rotary
        self._head_dim = config.head_dim
        self._scale = config.head_dim**-0.5
        q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        outputs = {f"{name}.q_proj": q_width, f"{name}.k_proj": kv_width, f"{name}.v_proj": kv_width}
        self._qkv = ColumnParallel(weights, outputs, config.hidden_size, config.qkv_bias)
        self._output = RowParallel(weights, f"{name}.o_proj", q_width, config.hidden_size, config.output_bias)

    def __call__(self, x: Tensor, inputs: StepInputs, cache: KvCache) -> Tensor:
        """x [T, C]: [T, C]. Writes the tokens' K and V into the cache, then attends to what the cache holds."""
        q, k, v = (self._heads(part) for part in torch.split(self._qkv(x), self._qkv.widths, dim=1))
        q, k = self._rotary(q, k, inputs.positions)
        kv_write(k, v, cache, inputs.slot_mapping)
        attended = paged_attention(q, cache, inputs.tables, inputs.starts, inputs.counts, scale=self._scale)
        return self._output(attended.flatten(1))

    def _heads(self, x: Tensor) -> Tensor:
        return x.contiguous().view(len(x), -1, self._head_dim)
