"""Faster forms of layers, where the kernels have them: they give the bits of the layer op by op, in fewer calls."""

from collections.abc import Sequence

from torch import Tensor

from penstock.kernels import fused
from penstock.kernels.activation import Activation
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.experts.cpu import Compiled
from penstock.kernels.fused.attention import AttentionLayer
from penstock.kernels.fused.blocks import Blocks
from penstock.kernels.fused.mixture import MixtureLayer
from penstock.kernels.fused.mlp import MlpLayer
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.linear import PackedWeight
from penstock.kernels.lora import AdapterRows
from penstock.shard.layers.attention import Attention
from penstock.shard.layers.block import (
    AttentionHalf,
    AttentionStep,
    Block,
    FeedForwardHalf,
    FeedForwardStep,
    SerialBlock,
)
from penstock.shard.layers.head_norms import EachHead, HeadNorms
from penstock.shard.layers.mixture import Mixture
from penstock.shard.layers.mlp import Mlp
from penstock.shard.layers.norm import RmsNorm


class FusedAttention:
    """Computes an `AttentionHalf` in one call, and then joins the ranks' sums."""

    def __init__(self, norm: RmsNorm, layer: Attention, head_norms: tuple[Tensor, Tensor] | None) -> None:
        assert layer.rotary is not None
        self.output = layer.output
        self.kernel = AttentionLayer(
            norm=norm.weight, eps=norm.eps, qkv=layer.qkv.weight, qkv_bias=layer.qkv.bias, head_norms=head_norms,
            cos=layer.rotary.cos, sin=layer.rotary.sin, output=layer.output.weight, output_bias=layer.output.bias,
            num_heads=layer.num_heads, num_kv_heads=layer.num_kv_heads, head_dim=layer.head_dim, scale=layer.scale,
            window=layer.window, qkv_site=layer.qkv.site or 0, output_site=layer.output.site or 0)

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: KvCache
    ) -> tuple[Tensor, Tensor]:
        shrunk = self.output.room_for(metadata.adapters, len(x))
        x, out = self.kernel(x, delta, metadata, cache, self.output.is_partial, shrunk)
        return x, self.output.join(out, x.dtype, metadata.adapters, shrunk)


class FusedMlp:
    """Computes a `FeedForwardHalf` in one call, and then joins the ranks' sums."""

    def __init__(self, norm: RmsNorm, layer: Mlp) -> None:
        self.down = layer.down
        self.kernel = MlpLayer(
            norm=norm.weight, eps=norm.eps, gate_up=layer.gate_up.weight, gate_up_bias=layer.gate_up.bias,
            down=layer.down.weight, down_bias=layer.down.bias, gate_up_site=layer.gate_up.site or 0,
            down_site=layer.down.site or 0)

    def __call__(
        self, x: Tensor, delta: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor]:
        shrunk = self.down.room_for(adapters, len(x))
        x, out = self.kernel(x, delta, self.is_partial, adapters, shrunk)
        return x, self.down.join(out, x.dtype, adapters, shrunk)

    @property
    def is_partial(self) -> bool:
        return self.down.is_partial


class FusedMixture:
    """Computes a `FeedForwardHalf` with a mixture in one call, and then joins the ranks' sums."""

    def __init__(self, norm: RmsNorm, layer: Mixture) -> None:
        self.layer = layer
        self.kernel = MixtureLayer(
            norm=norm.weight, eps=norm.eps, router=layer.router, router_bias=layer.router_bias,
            choice_bias=layer.choice_bias, form=layer.route_form, experts=layer.experts,
            has_shared=layer.has_shared, shared_gate=layer.shared_gate)

    def __call__(
        self, x: Tensor, delta: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor]:
        x, out = self.kernel(x, delta, self.is_partial)
        return x, self.layer.join(out, x.dtype)

    @property
    def is_partial(self) -> bool:
        return self.layer.is_partial


def fuse(block: Block) -> Block:
    """Returns the block with faster forms of its halves, which have the same bits, where the kernels have them.

    They have none but in the processor's compiled set, for halves like Llama's, and for weights that the compiled
    kernels read.
    """
    if not fused.is_available() or not isinstance(block, SerialBlock):
        return block
    attention, feed_forward = block.attention, block.feed_forward
    return SerialBlock(fuse_attention(attention) or attention,
                       fuse_mlp(feed_forward) or fuse_mixture(feed_forward) or feed_forward)


def fuse_blocks(blocks: Sequence[Block]) -> Blocks | None:
    """Returns all blocks of a decoder as one, with the same bits, or None.

    There is none if some half has no faster form, or if the ranks have sums to join between the halves.
    """
    attention: list[AttentionLayer] = []
    feed_forward: list[MlpLayer | MixtureLayer] = []
    for block in blocks:
        if not isinstance(block, SerialBlock):
            return None
        first, second = block.attention, block.feed_forward
        if not isinstance(first, FusedAttention) or not isinstance(second, FusedMlp | FusedMixture):
            return None
        if first.output.is_partial or second.is_partial:
            return None
        attention.append(first.kernel)
        feed_forward.append(second.kernel)
    return Blocks(attention, feed_forward)


def fuse_attention(half: AttentionStep) -> FusedAttention | None:
    """Returns the faster form of attention, if it has one."""
    if not isinstance(half, AttentionHalf):
        return None
    layer, norm = half.layer, half.residual.norm
    if type(layer) is not Attention or not isinstance(norm, RmsNorm) or not half.residual.is_plain:
        return None
    head_norms = None
    if layer.head_norms is not None:
        q_weight, k_weight = (_shared_weight(each, norm.eps) for each in layer.head_norms)
        if q_weight is None or k_weight is None:
            return None
        head_norms = q_weight, k_weight
    is_plain = layer.is_causal and layer.rotary is not None and layer.slopes is None and layer.sinks is None
    if not is_plain or layer.is_gated or layer.is_interleaved or layer.softcap or layer.clip:
        return None
    if not _are_compiled(layer.qkv.weight, layer.output.weight):
        return None
    return FusedAttention(norm, layer, head_norms)


def fuse_mlp(half: FeedForwardStep) -> FusedMlp | None:
    """Returns the faster form of a feed-forward network, if it has one."""
    if not isinstance(half, FeedForwardHalf):
        return None
    layer, norm = half.layer, half.residual.norm
    if type(layer) is not Mlp or not isinstance(norm, RmsNorm) or not half.residual.is_plain:
        return None
    is_swiglu = layer.is_gated and layer.activation is Activation.SILU
    return FusedMlp(norm, layer) if is_swiglu and _are_compiled(layer.gate_up.weight, layer.down.weight) else None


def fuse_mixture(half: FeedForwardStep) -> FusedMixture | None:
    """Returns the faster form of a mixture of experts, if it has one."""
    if not isinstance(half, FeedForwardHalf):
        return None
    layer, norm = half.layer, half.residual.norm
    if type(layer) is not Mixture or not isinstance(norm, RmsNorm) or not half.residual.is_plain:
        return None
    if layer.down_bias is not None or not isinstance(layer.experts.prepared, Compiled):
        return None
    routers = (layer.router,) if layer.shared_gate is None else (layer.router, layer.shared_gate)
    return FusedMixture(norm, layer) if _are_compiled(*routers) else None


def _shared_weight(norms: HeadNorms, eps: float) -> Tensor | None:
    """Returns the weight [D] that norms of heads share, if they are RMS norms with this eps."""
    if isinstance(norms, EachHead) and isinstance(norms.norm, RmsNorm) and norms.norm.eps == eps:
        return norms.norm.weight
    return None


def _are_compiled(*weights: PackedWeight) -> bool:
    return all(weight.compiled is not None for weight in weights)
