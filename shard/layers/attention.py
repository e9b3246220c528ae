"""Grouped-query attention (Ainslie et al. 2023) behind its norm, split over the ranks by heads."""

from typing import TYPE_CHECKING

from torch import Tensor

from penstock.kernels.attention_layer import AttentionWeights, Tokens, attention_layer
from penstock.kernels.kv_cache import KvCache
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
        """index: of the block, counted from 0."""
        head_dim, world_size = config.head_dim, weights.group.world_size
        q_width, kv_width = config.num_heads * head_dim, config.num_kv_heads * head_dim
        qkv_widths = {names.q: q_width, names.k: kv_width, names.v: kv_width}
        qkv = ColumnParallel(weights, qkv_widths, config.hidden_size, config.qkv_bias)
        self._output = RowParallel(weights, names.attention_output, q_width, config.hidden_size, config.output_bias)
        self._weights = AttentionWeights(
            norm=weights.whole(f"{names.attention_norm}.weight", config.hidden_size),
            eps=config.rms_norm_eps,
            qkv=qkv.weight,
            qkv_bias=qkv.bias,
            head_norms=_head_norms(weights, names, head_dim) if config.has_head_norms else None,
            cos=rotary.cos,
            sin=rotary.sin,
            output=self._output.weight,
            output_bias=self._output.bias,
            num_heads=config.num_heads // world_size,
            num_kv_heads=config.num_kv_heads // world_size,
            head_dim=head_dim,
            scale=head_dim**-0.5,
            window=config.windows[index],
        )

    def __call__(self, x: Tensor, delta: Tensor | None, tokens: Tokens, cache: KvCache) -> tuple[Tensor, Tensor]:
        """x + delta, both [T, C], and what the tokens get from those that they attend to, [T, C]."""
        x, out = attention_layer(self._weights, x, delta, tokens, cache, self._output.is_partial)
        return x, self._output.join(out, x.dtype)


def _head_norms(weights: RankWeights, names: BlockNames, head_dim: int) -> tuple[Tensor, Tensor]:
    return weights.whole(f"{names.q_norm}.weight", head_dim), weights.whole(f"{names.k_norm}.weight", head_dim)
