"""The numbers and switches that a decoder's computation depends on, whatever its family."""

from dataclasses import dataclass, field
from functools import cached_property

import torch

from penstock.shard.communication.own_inputs import inner_inputs
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import PLAIN, Quantization
from penstock.shard.models.names import USUAL_NAMES, TensorNames
from penstock.shard.models.parts import (
    OWN_HEAD,
    PLAIN_EMBEDDING,
    AttentionConfig,
    EmbeddingConfig,
    ExpertsConfig,
    HeadConfig,
    MlpConfig,
    NormConfig,
    RecurrenceConfig,
)
from penstock.shard.models.pooler_config import PoolerConfig
from penstock.shard.models.rotary_scaling import Rotation
from penstock.shard.weights.format import ITSELF, FormatOf, Place


@dataclass(frozen=True)
class ModelConfig:
    """A decoder's sizes and switches."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    context_length: int                  # the most tokens that a sequence may have
    attention: AttentionConfig
    mlp: MlpConfig                       # of blocks without a mixture of experts
    norm: NormConfig                     # of all norms but those of heads
    head_norm: NormConfig                # of heads, if they have one
    embedding: EmbeddingConfig = PLAIN_EMBEDDING
    head: HeadConfig = OWN_HEAD
    names: TensorNames = USUAL_NAMES
    is_parallel: bool = False            # attention and feed-forward network have the same input
    residual_multiplier: float = 1.0     # of what they add to it
    experts: ExpertsConfig | None = None
    plain_blocks: frozenset[int] = frozenset()  # the numbers of those that have no mixture, where there is one
    recurrence: RecurrenceConfig | None = None
    recurrent_blocks: frozenset[int] = frozenset()  # the numbers of those that have it in attention's place
    place: Place = ITSELF                # of the weights of blocks' linears
    architecture: str = ""
    dtype: torch.dtype = torch.float32   # of the checkpoint
    eos_token_ids: tuple[int, ...] = ()
    quantization: Quantization = PLAIN
    pooler: PoolerConfig | None = field(default=None, repr=False)  # None if it continues texts

    @property
    def format_of(self) -> FormatOf:
        """Returns the function that tells each linear's format."""
        return self.quantization.format_of

    @cached_property
    def rotations(self) -> tuple[Rotation, ...]:
        """The different rotations that blocks have."""
        return tuple(dict.fromkeys(rotation for rotation in self.attention.rotations if rotation is not None))

    def experts_of(self, block: int) -> ExpertsConfig | None:
        """Returns the mixture of experts of a block, if it has one."""
        return None if block in self.plain_blocks else self.experts

    @property
    def inner_sizes(self) -> dict[str, int]:
        """The inner sizes of the feed-forward networks, by what these are."""
        experts, sizes = self.experts, {}
        if experts is None or self.plain_blocks:
            sizes["feed-forward networks"] = self.mlp.inner_size
        if experts is not None:
            sizes["experts"] = experts.inner_size
            if experts.shared_size:
                sizes["shared experts"] = experts.shared_size
        return sizes

    @property
    def limitation(self) -> str:
        """Says what ends the context early; empty if nothing does."""
        return next((rotation.limitation for rotation in self.rotations if rotation.limitation), "")

    @property
    def angle_bytes(self) -> int:
        """The bytes that the cosines and sines of all positions take, float32, on each shard."""
        return sum(8 * self.context_length * len(rotation.frequencies) for rotation in self.rotations)

    def check_world_size(self, world_size: int) -> None:
        """Raises ModelConfigError, with the sizes that would do, if the model cannot be split over so many shards."""
        heads, kv_heads = self.attention.num_heads, self.attention.num_kv_heads

        def obstacles(shards: int) -> list[str]:
            is_a_rank_empty = -(-self.vocab_size // shards) * (shards - 1) >= self.vocab_size
            found = {
                f"{heads} heads": shards > heads,
                f"{kv_heads} KV heads": shards > kv_heads and shards % kv_heads,  # they have some of them twice
                **{f"{kind} of inner size {size}": inner_inputs(size, shards - 1, shards).is_empty
                   for kind, size in self.inner_sizes.items()},
                f"{self.vocab_size} tokens": is_a_rank_empty,
                **self._recurrent_obstacles(shards),
            }
            return [name for name, is_obstacle in found.items() if is_obstacle]

        if obstacles(world_size):
            would_do = [str(shards) for shards in range(1, heads + 1) if not obstacles(shards)]
            raise ModelConfigError(
                f"the model cannot be split over {world_size} shards, for it has {', '.join(obstacles(world_size))}; "
                f"it can be over {', '.join(would_do)}"
            )

    def _recurrent_obstacles(self, shards: int) -> dict[str, int]:
        if self.recurrence is None:
            return {}
        heads, groups = self.recurrence.num_heads, self.recurrence.num_groups
        return {f"{heads} recurrent heads": heads % shards,
                f"{groups} groups of recurrent heads": groups % shards and shards % groups}
