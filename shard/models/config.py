"""What the computation of a decoder depends on, whatever its family."""

from dataclasses import dataclass
from functools import cached_property

import torch

from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.names import USUAL_NAMES, TensorNames
from penstock.shard.models.parts import (
    OWN_HEAD,
    PLAIN_EMBEDDING,
    AttentionConfig,
    EmbeddingConfig,
    HeadConfig,
    MlpConfig,
    NormConfig,
)
from penstock.shard.models.rotary_scaling import Rotation
from penstock.shard.models.weight_options import PLAIN, Quantization
from penstock.shard.weights.format import FormatOf


@dataclass(frozen=True)
class ModelConfig:
    """A decoder's sizes and switches."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    context_length: int                  # the most tokens that a sequence may have
    attention: AttentionConfig
    mlp: MlpConfig
    norm: NormConfig                     # of all norms but those of heads
    head_norm: NormConfig                # of heads, if they have one
    embedding: EmbeddingConfig = PLAIN_EMBEDDING
    head: HeadConfig = OWN_HEAD
    names: TensorNames = USUAL_NAMES
    is_parallel: bool = False            # attention and feed-forward network have the same input
    residual_multiplier: float = 1.0     # of what they add to it
    is_transposed: bool = False          # linears of blocks are stored [inputs, outputs]
    architecture: str = ""
    dtype: torch.dtype = torch.float32   # of the checkpoint; float32 if it does not say
    eos_token_ids: tuple[int, ...] = ()
    quantization: Quantization = PLAIN

    @property
    def format_of(self) -> FormatOf:
        """Returns the function that tells each linear's format."""
        return self.quantization.format_of

    @cached_property
    def rotations(self) -> tuple[Rotation, ...]:
        """The different rotations that blocks have."""
        return tuple(dict.fromkeys(rotation for rotation in self.attention.rotations if rotation is not None))

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
        heads, kv_heads, inner = self.attention.num_heads, self.attention.num_kv_heads, self.mlp.inner_size

        def obstacles(shards: int) -> list[str]:
            is_a_rank_empty = -(-self.vocab_size // shards) * (shards - 1) >= self.vocab_size
            found = {
                f"{heads} heads": heads % shards,
                f"{kv_heads} KV heads": kv_heads % shards and shards % kv_heads,  # more shards have some of them twice
                f"feed-forward networks of inner size {inner}": inner % shards,
                f"{self.vocab_size} tokens": is_a_rank_empty,
            }
            return [name for name, is_obstacle in found.items() if is_obstacle]

        if obstacles(world_size):
            would_do = [str(shards) for shards in range(1, heads + 1) if not obstacles(shards)]
            raise ModelConfigError(
                f"the model cannot be split over {world_size} shards, for it has {', '.join(obstacles(world_size))}; "
                f"it can be over {', '.join(would_do)}"
            )
