"""The sizes of a model, from config.json alone: bytes of weights, of keys and values, and operations for each token."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.bench.planning.linears import Linear, block_linears, num_others, vocabulary_linears
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.kv_cache import KvShape
from penstock.shard.layers.heads import OwnHeads
from penstock.shard.layers.recurrence_parts import OwnRecurrence
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.encoder_config import EncoderConfig
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.models.reading import DTYPES, read_model_config

BLOCK_SIZE = 16


@dataclass(frozen=True)
class ModelSize:
    """The sizes of a model whose numbers have one dtype, or whose linears have the formats of its checkpoint."""

    config: ModelConfig
    dtype: torch.dtype
    kv_dtype: torch.dtype
    num_parameters: int
    weight_bytes: int
    read_bytes: int                      # of weights that every step reads, whatever tokens it has
    expert_bytes: int                    # of weights of which each token has its part
    active: int                          # parameters by which a token is multiplied

    @property
    def format(self) -> str:
        """Returns the name of the weights' format."""
        return self.config.quantization.name or str(self.dtype).removeprefix("torch.")

    def step_bytes(self, num_tokens: float) -> float:
        """Returns the bytes of weights that a step of so many tokens reads: of a mixture's experts those that at least
        one of the tokens has, if all have the same chances."""
        experts = self.config.experts
        if experts is None or not self.expert_bytes:
            return self.read_bytes
        unread: float = (1 - experts.route.top_k / experts.num_experts) ** num_tokens
        return self.read_bytes + self.expert_bytes * (1 - unread)

    @property
    def token_operations(self) -> int:
        """Returns the operations of one token beside attention: a product and a sum for each active parameter."""
        return 2 * self.active

    @property
    def pair_operations(self) -> int:
        """Returns the operations of one token that sees another, in all layers: its score, and its part of the sum."""
        attention = self.config.attention
        return 4 * attention.num_heads * attention.head_dim * self._num_caches

    def kv_shape(self, num_shards: int = 1) -> KvShape:
        """Returns the shape of the keys and values of the shard that has most of them."""
        heads = max(len(own.kv_heads) for own in OwnHeads.of_all(self.config.attention, num_shards))
        return KvShape(self._num_caches, heads, self.config.attention.head_dim, BLOCK_SIZE, self.kv_dtype)

    def kv_bytes(self, num_shards: int = 1) -> float:
        """Returns the bytes of one token's keys and values on a shard."""
        return self.kv_shape(num_shards).block_bytes / BLOCK_SIZE

    @property
    def state_bytes(self) -> int:
        """Returns the bytes of what recurrent layers keep of one sequence, whatever its length."""
        if self.config.recurrence is None:
            return 0
        shape = OwnRecurrence.of(self.config.recurrence, Group()).state_shape(self.dtype)
        return shape.num_bytes * len(self.config.recurrent_blocks)

    @property
    def _num_caches(self) -> int:
        return self.config.num_layers - len(self.config.recurrent_blocks)


def read_model_size(
    directory: Path, dtype: str | None = None, quantize: str | None = None, kv_dtype: torch.dtype | None = None
) -> ModelSize:
    """Reads the config.json of a directory, in which nothing else need be. Raises ModelConfigError."""
    config = read_model_config(directory, ModelOptions(quantize=quantize))
    if isinstance(config, EncoderConfig) or not config.attention.is_causal:
        raise ModelConfigError(f"{directory / 'config.json'}: {config.architecture} is an encoder; a plan is for "
                               "models that continue texts")
    own = DTYPES[dtype] if dtype else config.dtype
    embedding, head = vocabulary_linears(config)
    blocks, others = list(block_linears(config)), num_others(config)
    heads = [embedding if head is None else head]
    experts = [linear for linear in blocks if linear.is_expert]
    rest = [linear for linear in blocks if not linear.is_expert]

    def num_bytes(linears: Iterable[Linear]) -> int:
        return sum(linear.num_bytes(config.format_of, own) for linear in linears)

    read = num_bytes(rest) + num_bytes(heads) + others * own.itemsize
    expert_bytes = num_bytes(experts)
    share = config.experts.route.top_k / config.experts.num_experts if config.experts else 0.0
    matrices = num_elements([*rest, *heads]) + others
    return ModelSize(
        config, own, kv_dtype or own, matrices + num_elements(experts) + (embedding.num_elements if head else 0),
        read + expert_bytes + (num_bytes([embedding]) if head else 0), read, expert_bytes,
        matrices + round(num_elements(experts) * share))


def bytes_by_format(directory: Path) -> dict[str, int]:
    """Returns the bytes of a model's weights in each format that it can be served in: those to which plain numbers are
    rounded are none of a checkpoint that is quantised. Raises ModelConfigError."""
    own = read_model_size(directory)
    if own.config.quantization.name:
        return {own.format: own.weight_bytes}
    sizes = [*(read_model_size(directory, dtype=name) for name in ("float32", "bfloat16")),
             *(read_model_size(directory, quantize=name) for name in ("int8", "int4"))]
    return {size.format: size.weight_bytes for size in sizes}


def num_elements(linears: Iterable[Linear]) -> int:
    return sum(linear.num_elements for linear in linears)
