"""What the two halves of a decoder block are, whatever computes them; a family chooses their classes."""

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.rank_weights import RankWeights

if TYPE_CHECKING:
    from penstock.shard.models.config import ModelConfig


class AttentionHalf(Protocol):
    """The half that lets the tokens of a sequence see each other."""

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: KvCache
    ) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what each token gets from those that it sees, [T, C]."""


class FeedForwardHalf(Protocol):
    """The half that transforms each token by itself."""

    def __call__(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what becomes of each token, [T, C]."""


class AttentionClass(Protocol):
    """Makes one from what the checkpoint has; it reads its own part of the weights."""

    def __call__(
        self, config: "ModelConfig", weights: RankWeights, names: BlockNames, index: int, rotary: Rotary
    ) -> AttentionHalf: ...


class FeedForwardClass(Protocol):
    """Makes one from what the checkpoint has; it reads its own part of the weights."""

    def __call__(self, config: "ModelConfig", weights: RankWeights, names: BlockNames) -> FeedForwardHalf: ...
