"""A block of a decoder: attention and a feed-forward network, each joined to the residual stream."""

from typing import Any, Protocol

from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.lora import AdapterRows
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.layers.attention import Attention
from penstock.shard.layers.latent_attention import LatentAttention
from penstock.shard.layers.mixture import Mixture
from penstock.shard.layers.mlp import Mlp
from penstock.shard.layers.norm import NoNorm, read_norm
from penstock.shard.layers.recurrence import Recurrence
from penstock.shard.layers.residual import Residual
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.rank_weights import RankWeights


class Mixer(Protocol):
    """Lets the tokens of a sequence see each other: attention, or what stands in its place."""

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Any) -> Tensor:
        """Returns the output for each token of x [T, C], which reads those before it, [T, C]. cache: of the layer's own
        kind"""


class Block(Protocol):
    """Transforms the tokens of a step."""

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: LayerMemory
    ) -> tuple[Tensor, Tensor]:
        """Returns the residual stream [T, C] and what is yet to be added to it: the next norm adds it as it reads."""


class AttentionStep(Protocol):
    """An `AttentionHalf`, or what computes the same."""

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: Any
    ) -> tuple[Tensor, Tensor]: ...


class FeedForwardStep(Protocol):
    """A `FeedForwardHalf`, or what computes the same."""

    def __call__(
        self, x: Tensor, delta: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor]: ...


class SerialBlock:
    """The feed-forward network reads what attention has been added to."""

    def __init__(self, attention: "AttentionStep", feed_forward: "FeedForwardStep") -> None:
        self.attention = attention
        self.feed_forward = feed_forward

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: LayerMemory
    ) -> tuple[Tensor, Tensor]:
        x, delta = self.attention(x, delta, metadata, cache)
        return self.feed_forward(x, delta, metadata.adapters)


class ParallelBlock:
    """Attention and the feed-forward network read the same (Wang and Komatsuzaki 2021), by one norm or by two."""

    def __init__(self, attention: "AttentionHalf", feed_forward: "FeedForwardHalf", has_two_norms: bool) -> None:
        self.attention = attention
        self.feed_forward = feed_forward
        self.has_two_norms = has_two_norms

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: LayerMemory
    ) -> tuple[Tensor, Tensor]:
        first, second = self.attention, self.feed_forward
        normed, x = first.residual.enter(x, delta)
        attended = first.residual.leave(first.layer(normed, metadata, cache))
        if self.has_two_norms:
            normed, _ = second.residual.enter(x, None)
        return x, attended + second.residual.leave(second.layer(normed, metadata.adapters))


class AttentionHalf:
    """Attention, or what stands in its place, and how it is joined to the residual stream."""

    def __init__(self, residual: Residual, layer: Mixer) -> None:
        self.residual = residual
        self.layer = layer

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: LayerMemory
    ) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what is to be added to it, [T, C]."""
        normed, x = self.residual.enter(x, delta)
        return x, self.residual.leave(self.layer(normed, metadata, cache))


class FeedForwardHalf:
    """A feed-forward network and how it is joined to the residual stream."""

    def __init__(self, residual: Residual, layer: Mlp | Mixture) -> None:
        self.residual = residual
        self.layer = layer

    def __call__(
        self, x: Tensor, delta: Tensor | None, adapters: AdapterRows | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what is to be added to it, [T, C]."""
        normed, x = self.residual.enter(x, delta)
        return x, self.residual.leave(self.layer(normed, adapters))


def read_block(
    config: ModelConfig, weights: RankWeights, index: int, rotary: Rotary | None
) -> SerialBlock | ParallelBlock:
    """Makes the block of this number from its part of the checkpoint."""
    names = config.names.of_block(index)

    def residual(norm: str, post_norm: str) -> Residual:
        before, after = (read_norm(config.norm, weights, name, config.hidden_size) for name in (norm, post_norm))
        return Residual(before, after, config.residual_multiplier)

    mixer = _read_mixer(config, weights, names, index, rotary)
    attention = AttentionHalf(residual(names.attention_norm, names.attention_post_norm), mixer)
    experts = config.experts_of(index)
    network = Mlp(config, weights, names) if experts is None else Mixture(config, experts, weights, names)
    feed_forward = FeedForwardHalf(residual(names.feed_forward_norm, names.feed_forward_post_norm), network)
    if config.is_parallel:
        return ParallelBlock(attention, feed_forward, not isinstance(feed_forward.residual.norm, NoNorm))
    return SerialBlock(attention, feed_forward)


def waits_for_device(block: SerialBlock | ParallelBlock) -> bool:
    """Tells whether the host is to know which experts were chosen: so it is where no kernel reads all their weights."""
    half = block.feed_forward
    return isinstance(half, FeedForwardHalf) and isinstance(half.layer, Mixture) and half.layer.experts.prepared is None


def _read_mixer(
    config: ModelConfig, weights: RankWeights, names: BlockNames, index: int, rotary: Rotary | None
) -> Mixer:
    if index in config.recurrent_blocks:
        return Recurrence(config, weights, names)
    if config.attention.latent is None:
        return Attention(config, weights, names, index, rotary)
    assert rotary is not None
    return LatentAttention(config, config.attention.latent, weights, names, rotary)
