"""What the two halves of a decoder block are, whatever computes them; a family chooses their classes."""

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from penstock.kernels.attention_layer import Tokens
from penstock.kernels.kv_cache import KvCache
from penstock.shard.layers.rope import Rotary
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.rank_weights import RankWeights

if TYPE_CHECKING:
    from penstock.shard.models.config import ModelConfig


class AttentionLayer(Protocol):
    """The half that lets the tokens of a sequence see each other."""

    def __call__(self, x: Tensor, delta: Tensor | None, tokens: Tokens, cache: KvCache) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what each token gets from those that it sees, [T, C]."""


class FeedForwardLayer(Protocol):
    """The half that transforms each token by itself."""

    def __call__(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what becomes of each token, [T, C]."""


class AttentionClass(Protocol):
    """Reads its own part of the weights."""

    def __call__(
        self, config: "ModelConfig", weights: RankWeights, names: BlockNames, index: int, rotary: Rotary
    ) -> AttentionLayer: ...


class FeedForwardClass(Protocol):
    """Reads its own part of the weights."""

    def __call__(self, config: "ModelConfig", weights: RankWeights, names: BlockNames) -> FeedForwardLayer: ...
