"""The attention half of a block is its ops, one after the other: in a CUDA graph launches cost next to nothing."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from penstock.kernels.attention_layer.reference import prepare_tokens, prepare_weights
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write.gpu import kv_write
from penstock.kernels.linear.gpu import linear
from penstock.kernels.paged_attention.gpu import paged_attention
from penstock.kernels.rms_norm.gpu import rms_norm
from penstock.kernels.rope.gpu import rope

if TYPE_CHECKING:
    from penstock.kernels.attention_layer import AttentionWeights, Tokens

__all__ = ["attention_layer", "prepare_tokens", "prepare_weights"]


def attention_layer(
    weights: "AttentionWeights", x: Tensor, delta: Tensor | None, tokens: "Tokens", cache: KvCache, partial: bool
) -> tuple[Tensor, Tensor]:
    w = weights
    normed, total = rms_norm(x, w.norm, w.eps, delta)
    qkv = linear(normed, w.qkv, w.qkv_bias, x.dtype).view(len(x), w.num_heads + 2 * w.num_kv_heads, w.head_dim)
    q, k, v = torch.split(qkv, [w.num_heads, w.num_kv_heads, w.num_kv_heads], dim=1)
    if w.head_norms:
        q, k = (_norm_heads(heads, norm, w.eps) for heads, norm in zip((q, k), w.head_norms, strict=True))
    q, k = rope(q, k, w.cos, w.sin, tokens.positions)
    kv_write(k, v, cache, tokens.slots)
    attended = paged_attention(q, cache, tokens.tables, tokens.starts, tokens.counts, w.scale, w.window, 0.0, None,
                               tokens.is_decode).flatten(1)
    bias, dtype = (None, torch.float32) if partial else (w.output_bias, x.dtype)
    return total, linear(attended, w.output, bias, dtype)


def _norm_heads(x: Tensor, norm: Tensor, eps: float) -> Tensor:
    """x [T, H, D]: the same."""
    normed, _ = rms_norm(x.contiguous().view(-1, x.shape[-1]), norm, eps, None)
    return normed.view(x.shape)
