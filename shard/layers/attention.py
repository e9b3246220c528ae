"""Grouped-query attention (Ainslie et al. 2023) behind its norm, split over the ranks by heads."""

from torch import Tensor

from penstock.kernels.attention_layer import AttentionWeights, Tokens, attention_layer
from penstock.kernels.kv_cache import KvCache
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.config import ModelConfig
from penstock.shard.weights.checkpoint import RankWeights


class Attention:
    def __init__(
        self, config: ModelConfig, weights: RankWeights, name: str, norm: Tensor, rotary: Rotary, window: int
    ) -> None:
        """window: tokens that each sees, itself included; 0 for all."""
        head_dim, world_size = config.head_dim, weights.group.world_size
        q_width, kv_width = config.num_heads * head_dim, config.num_kv_heads * head_dim
        outputs = {f"{name}.q_proj": q_width, f"{name}.k_proj": kv_width, f"{name}.v_proj": kv_width}
        qkv = ColumnParallel(weights, outputs, config.hidden_size, config.qkv_bias)
        self._output = RowParallel(weights, f"{name}.o_proj", q_width, config.hidden_size, config.output_bias)
        self._weights = AttentionWeights(
            norm=norm,
            eps=config.rms_norm_eps,
            qkv=qkv.weight,
            qkv_bias=qkv.bias,
            head_norms=_head_norms(weights, name, head_dim) if config.has_head_norms else None,
            cos=rotary.cos,
            sin=rotary.sin,
            output=self._output.weight,
            output_bias=self._output.bias,
            num_heads=config.num_heads // world_size,
            num_kv_heads=config.num_kv_heads // world_size,
            head_dim=head_dim,
            scale=head_dim**-0.5,
            window=window,
        )

    def __call__(self, x: Tensor, delta: Tensor | None, tokens: Tokens, cache: KvCache) -> tuple[Tensor, Tensor]:
        """x + delta, both [T, C], and what the tokens get from those that they attend to, [T, C]."""
        x, out = attention_layer(self._weights, x, delta, tokens, cache, self._output.is_partial)
        return x, self._output.join(out, x.dtype)


def _head_norms(weights: RankWeights, name: str, head_dim: int) -> tuple[Tensor, Tensor]:
    return weights.whole(f"{name}.q_norm.weight", head_dim), weights.whole(f"{name}.k_norm.weight", head_dim)
