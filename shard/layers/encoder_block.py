"""A block of an encoder: attention in which all tokens of a text see one another, and a feed-forward network."""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels.activation import Activation, activate, activate_gate
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.full_attention import full_attention
from penstock.kernels.lora import AdapterRows
from penstock.kernels.rope import rope
from penstock.shard.layers.disentangled import Disentangled, read_disentangled
from penstock.shard.layers.heads import OwnHeads, qkv_parts
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.layers.norm import Norm, make_norm, read_norm
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.encoder_config import EncoderConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.rank_weights import RankWeights

OLD_WEIGHT, OLD_BIAS = "gamma", "beta"
"""The names that the first checkpoints of BERT give to the tensors of a norm."""


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """Has all weights and switches of a block, of one rank. A step's ranks have the same tokens."""

    attention_norm: Norm
    qkv: ColumnParallel                  # q, k and v of its heads
    output: RowParallel
    feed_forward_norm: Norm
    gate_up: ColumnParallel              # gate and up, or up alone
    down: RowParallel
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float                         # of q·k
    window: int                          # positions that a token sees before it, and behind it; 0 for all
    rotary: Rotary | None                # None if q and k are not rotated
    bias: Tensor | None                  # float32 [H, 2 * R + 1], what scores get for distances; None for nothing
    disentangled: Disentangled | None    # what attends where keys and queries are made of distances
    activation: Activation
    is_gated: bool
    is_post_norm: bool                   # the norms are behind attention and the network, not before them

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the residual stream [T, C] and what is yet to be added to it, if anything is; takes the same."""
        if self.is_post_norm:
            x, _ = self.attention_norm(self.attend(x, metadata), x)
            x, _ = self.feed_forward_norm(self.feed_forward(x, metadata.adapters), x)
            return x, None
        normed, x = self.attention_norm(x, delta)
        normed, x = self.feed_forward_norm(x, self.attend(normed, metadata))
        return x, self.feed_forward(normed, metadata.adapters)

    def attend(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Returns the output of attention for each token of x [T, C], [T, C]."""
        heads = self.qkv(x, metadata.adapters).view(len(x), -1, self.head_dim)
        q, k, v = torch.split(heads, [self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=1)
        if self.rotary is not None:
            q, k = rope(q, k, self.rotary.cos, self.rotary.sin, metadata.positions)
        if self.disentangled is not None:
            attended = self.disentangled(q, k, v, metadata.counts, self.scale)
        else:
            attended = full_attention(q, k, v, metadata.counts, scale=self.scale, window=self.window, bias=self.bias)
        return self.output(attended.flatten(1), metadata.adapters)

    def feed_forward(self, x: Tensor, adapters: AdapterRows | None) -> Tensor:
        """Returns the output of the feed-forward network for each token of x [T, C], [T, C]."""
        inner = self.gate_up(x, adapters)
        return self.down((activate_gate if self.is_gated else activate)(inner, self.activation), adapters)


def read_encoder_block(
    config: EncoderConfig, weights: RankWeights, index: int, rotary: Rotary | None, bias: Tensor | None
) -> EncoderBlock:
    """Makes the block of this number from its part of the checkpoint. bias: of this rank's heads"""
    names, attention, mlp, hidden = config.names.of_block(index), config.attention, config.mlp, config.hidden_size
    own = OwnHeads.of(attention, weights.group.rank, weights.group.world_size)
    own_outputs = own.outputs(attention, weights.group.rank, weights.group.world_size)
    attention_norm = names.attention_norm if index or config.is_first_normed else ""
    qkv = ColumnParallel(weights, qkv_parts(attention, own, names, hidden, config.place), attention.qkv_bias,
                         takes_adapters=config.far is None)
    return EncoderBlock(
        attention_norm=read_named_norm(config, weights, attention_norm),
        qkv=qkv,
        output=RowParallel(weights, names.attention_output, attention.num_heads * attention.head_dim, hidden,
                           attention.output_bias, config.place, own_outputs, takes_adapters=True),
        feed_forward_norm=read_named_norm(config, weights, names.feed_forward_norm),
        gate_up=ColumnParallel(weights, _inner_parts(config, weights, names), mlp.has_bias and config.has_inner_bias,
                               takes_adapters=True),
        down=RowParallel(weights, names.down, mlp.inner_size, hidden, mlp.has_bias, config.place,
                         takes_adapters=True),
        num_heads=len(own.heads), num_kv_heads=len(own.kv_heads), head_dim=attention.head_dim, scale=attention.scale,
        window=attention.windows[index], rotary=rotary, bias=bias,
        disentangled=read_disentangled(config, weights, qkv, len(own.heads)), activation=mlp.activation,
        is_gated=mlp.is_gated, is_post_norm=config.is_post_norm)


def read_named_norm(config: EncoderConfig, weights: RankWeights, name: str) -> Norm:
    """Makes the norm of this name, whose tensors may have the names that they had at first."""
    width = config.hidden_size
    if not name or weights.shape(f"{name}.{OLD_WEIGHT}") is None:
        return read_norm(config.norm, weights, name, width)
    weight, bias = (weights.whole(f"{name}.{tensor}", width)[None] for tensor in (OLD_WEIGHT, OLD_BIAS))
    return make_norm(config.norm, weight, bias)


def _inner_parts(config: EncoderConfig, weights: RankWeights, names: BlockNames) -> list[tuple[str, LinearPart]]:
    """Returns a rank's parts of the linears that make the inner numbers: gate's, then up's, or up's alone."""
    mlp, hidden = config.mlp, config.hidden_size
    if mlp.is_stacked:
        halves = weights.own_halves(names.gate_up, mlp.inner_size, hidden, config.place)
        return halves[::-1] if config.is_up_first else halves
    linears = (names.gate, names.up) if mlp.is_gated else (names.up,)
    return weights.own_outputs(dict.fromkeys(linears, mlp.inner_size), hidden, config.place)
