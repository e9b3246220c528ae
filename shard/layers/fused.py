"""Faster forms of layers, where the kernels have them: they give the bits of the layer op by op, in fewer calls."""

from collections.abc import Sequence
from typing import overload

from torch import Tensor

from penstock.kernels import fused
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.fused.attention import AttentionLayer
from penstock.kernels.fused.blocks import Blocks
from penstock.kernels.fused.mlp import MlpLayer
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.linear import PackedWeight
from penstock.shard.layers.attention import Attention
from penstock.shard.layers.mlp import Mlp
from penstock.shard.layers.protocols import AttentionHalf, FeedForwardHalf


class FusedAttention:
    """Computes what `Attention` does in one call, and then joins the ranks' sums."""

    def __init__(self, layer: Attention) -> None:
        self.output = layer.output
        self.kernel = AttentionLayer(
            norm=layer.norm, eps=layer.eps, qkv=layer.qkv.weight, qkv_bias=layer.qkv.bias, head_norms=layer.head_norms,
            cos=layer.rotary.cos, sin=layer.rotary.sin, output=layer.output.weight, output_bias=layer.output.bias,
            num_heads=layer.num_heads, num_kv_heads=layer.num_kv_heads, head_dim=layer.head_dim, scale=layer.scale,
            window=layer.window)

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: KvCache
    ) -> tuple[Tensor, Tensor]:
        x, out = self.kernel(x, delta, metadata, cache, self.output.is_partial)
        return x, self.output.join(out, x.dtype)


class FusedMlp:
    """Computes what `Mlp` does in one call, and then joins the ranks' sums."""

    def __init__(self, layer: Mlp) -> None:
        self.down = layer.down
        self.kernel = MlpLayer(
            norm=layer.norm, eps=layer.eps, gate_up=layer.gate_up.weight, gate_up_bias=layer.gate_up.bias,
            down=layer.down.weight, down_bias=layer.down.bias)

    def __call__(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        x, out = self.kernel(x, delta, self.down.is_partial)
        return x, self.down.join(out, x.dtype)


@overload
def fuse(layer: AttentionHalf) -> FusedAttention | None: ...
@overload
def fuse(layer: FeedForwardHalf) -> FusedMlp | None: ...
def fuse(layer: AttentionHalf | FeedForwardHalf) -> FusedAttention | FusedMlp | None:
    """Returns a faster form of a layer with the same bits, or None if the kernels have none.

    They have none but in the processor's compiled set, for layers that are exactly these (what derives from one may
    compute something else), and for weights that the compiled kernels read.
    """
    if not fused.is_available():
        return None
    if type(layer) is Attention:
        return _fuse_attention(layer)
    if type(layer) is Mlp:
        return _fuse_mlp(layer)
    return None


def fuse_blocks(halves: Sequence[tuple[AttentionHalf, FeedForwardHalf]]) -> Blocks | None:
    """Returns all blocks of a decoder as one, with the same bits, or None.

    There is none if some half has no faster form, or if the ranks have sums to join between the halves.
    """
    attention, mlp = [], []
    for first, second in halves:
        if not isinstance(first, FusedAttention) or not isinstance(second, FusedMlp):
            return None
        if first.output.is_partial or second.down.is_partial:
            return None
        attention.append(first.kernel)
        mlp.append(second.kernel)
    return Blocks(attention, mlp)


def _fuse_attention(layer: Attention) -> FusedAttention | None:
    return FusedAttention(layer) if _are_compiled(layer.qkv.weight, layer.output.weight) else None


def _fuse_mlp(layer: Mlp) -> FusedMlp | None:
    return FusedMlp(layer) if _are_compiled(layer.gate_up.weight, layer.down.weight) else None


def _are_compiled(*weights: PackedWeight) -> bool:
    return all(weight.compiled is not None for weight in weights)
