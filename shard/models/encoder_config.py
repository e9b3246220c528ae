"""The numbers and switches that an encoder's computation depends on beside those of every model."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import TensorNames

HEADS_OF_ENCODERS = ("classifier", "cls", "decoder", "head", "lm_head", "pooler", "pre_classifier", "score",
                     "vocab_layer_norm", "vocab_projector", "vocab_transform")
"""The names of the layers behind encoders, which make vectors and scores of what these compute."""


@dataclass(frozen=True, slots=True)
class EncoderNames(TensorNames):
    """The names of all layers of an encoder, without the word that classes with a head put before them. A block's norms
    are of the sums behind its two halves, or before the halves."""

    norm: str = ""
    head: str = ""
    token_types: str = ""
    distances: str = ""                  # of what attention's scores get for the distance of two tokens
    distances_norm: str = ""

    def under(self, base: str) -> Self:
        """Returns the names with what a checkpoint puts before all of them."""
        names: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)
                                 if field.name not in ("block", "head")}
        under: dict[str, Any] = {field: name and f"{base}{name}" for field, name in names.items()}
        return replace(self, **under)


@dataclass(frozen=True, slots=True)
class FarConfig:
    """The classes of distances that have rows, of which keys and queries are made (He et al. 2021)."""

    longest: int                         # in tokens
    buckets: int = 0                     # of either direction; 0: each distance has one

    @property
    def span(self) -> int:
        """Returns the classes of either direction."""
        return self.buckets or self.longest


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """The sizes and switches of a model whose tokens all see one another, and which computes each text whole. A window
    of its attention reaches so many tokens before each, and as many behind it."""

    names: EncoderNames = EncoderNames()
    base: str = ""                       # what the checkpoint puts before the names of all layers
    num_token_types: int = 0             # the first is of one text, or of the first of a pair, the second of the second
    is_post_norm: bool = True            # sums are normed behind each half of a block (Vaswani et al. 2017)
    is_first_normed: bool = True         # before attention; the embedding has a norm in any case
    far: FarConfig | None = None         # None if no keys and queries are made of distances
    num_distances: int = 0               # classes of the distance of two tokens; 0 if scores get nothing for it
    is_up_first: bool = False            # of a feed-forward network with a gate, where both are stored as one linear
    has_inner_bias: bool = True          # of the linears that make the inner numbers of feed-forward networks
