"""A loaded model, as the executor uses it, whether our decoder or transformers computes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.lora import AdapterRows
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.models.pooler_config import PoolerConfig
from penstock.shard.weights.sites import Adaptable

NATIVE, TRANSFORMERS = "native", "transformers"


@dataclass(frozen=True, slots=True)
class Hidden:
    """The output of the blocks for a step's T tokens: the residual stream and the term still to be added to it, both
    [T, C]."""

    x: Tensor
    delta: Tensor
    adapters: AdapterRows | None = None  # of the tokens, if any of them has one


class SequenceState(Protocol):
    """Describes the state of a sequence in one layer beside, or in place of, keys and values in blocks."""

    @property
    def num_bytes(self) -> int: ...

    def allocate(self, number: int, device: torch.device) -> LayerMemory:
        """Returns memory for so many sequences."""


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Describes one rank's memory of sequences: a cache for each layer, or a state for those of `state_layers`."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    state: SequenceState | None = None
    state_layers: frozenset[int] = frozenset()
    token_bytes: int = 0                 # of each token of a sequence, beside what the caches hold of it

    @property
    def is_whole(self) -> bool:
        """Tells whether nothing is kept of a sequence: each is computed whole, in one step."""
        return not self.num_layers

    @property
    def num_caches(self) -> int:
        return self.num_layers - len(self.state_layers)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Tells what the executor and the router must know of a model."""

    vocab_size: int
    context_length: int                  # the most tokens that a sequence may have
    layout: MemoryLayout
    eos_token_ids: tuple[int, ...] = ()
    numerics: str = ""                   # what decides bits beside kernels and dtypes, a part of a path
    implementation: str = NATIVE
    identity: str = field(default="", repr=False)  # of all that its keys and values depend on beside its weights
    pooler: PoolerConfig | None = None   # of what is made of texts in place of more text


class Model(Protocol):
    """One rank's slice of a model, or of a stage of it. All ranks of the group run the same steps in the same order."""

    facts: ModelFacts
    dtype: torch.dtype
    inequality: str                      # why another number of shards gives other bits; empty if it does not
    adaptable: Adaptable | None          # where it takes adapters
    is_capturable: bool                  # no step of it makes the host wait for the device

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, caches: Sequence[LayerMemory]) -> Hidden:
        """Runs the layers on token ids, int64 [T], each layer with its own memory."""

    def logits(self, hidden: Hidden, rows: Tensor) -> Tensor | None:
        """Returns float32 logits [R, V] after R of the tokens, int64 indices into T, on rank 0 of the last
        stage; None on its others, and of a model that makes vectors or scores."""
