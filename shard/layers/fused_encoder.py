"""The blocks of an encoder as one call, where the kernels have it: it gives the bits of the blocks op by op."""

from collections.abc import Sequence

from penstock.kernels import fused
from penstock.kernels.fused import encoder as kernels
from penstock.kernels.fused.encoder import EncoderBlocks, EncoderLayer
from penstock.shard.layers.encoder_block import EncoderBlock
from penstock.shard.layers.norm import LayerNorm, NoNorm, Norm


def fuse_encoder(blocks: Sequence[EncoderBlock]) -> EncoderBlocks | None:
    """Returns all blocks as one, with the same bits, or None.

    There is none but in the processor's compiled set, for layer norms and weights that the compiled kernels read, and
    where no sums of several ranks have to be joined between the halves.
    """
    if not fused.is_available() or not blocks:
        return None
    layers = [_fused(block, is_first=block is blocks[0]) for block in blocks]
    found = [layer for layer in layers if layer is not None]
    return EncoderBlocks(found) if len(found) == len(layers) else None


def _fused(block: EncoderBlock, is_first: bool) -> EncoderLayer | None:
    first, second = _norm(block.attention_norm), _norm(block.feed_forward_norm)
    has_norm = first is not None or (
        is_first and not block.is_post_norm and isinstance(block.attention_norm, NoNorm))
    linears = (block.qkv, block.output, block.gate_up, block.down)
    if not has_norm or second is None or any(each.weight.compiled is None for each in linears):
        return None
    if block.output.is_partial or block.down.is_partial or block.disentangled is not None:
        return None
    qkv_site, output_site, gate_up_site, down_site = (each.site or 0 for each in linears)
    return EncoderLayer(
        attention_norm=first, qkv=block.qkv.weight, qkv_bias=block.qkv.bias,
        rotation=None if block.rotary is None else (block.rotary.cos, block.rotary.sin),
        output=block.output.weight, output_bias=block.output.bias, feed_forward_norm=second,
        gate_up=block.gate_up.weight, gate_up_bias=block.gate_up.bias, down=block.down.weight,
        down_bias=block.down.bias, num_heads=block.num_heads, num_kv_heads=block.num_kv_heads,
        head_dim=block.head_dim, scale=block.scale, window=block.window, bias=block.bias, activation=block.activation,
        is_gated=block.is_gated, is_post_norm=block.is_post_norm,
        sites=(qkv_site, output_site, gate_up_site, down_site))


def _norm(norm: Norm) -> kernels.LayerNorm | None:
    """Returns a layer norm that all rows share, as the kernels want it; None for another norm."""
    if not isinstance(norm, LayerNorm) or len(norm.weight) != 1:
        return None
    return kernels.LayerNorm(norm.weight, norm.bias, norm.eps)
