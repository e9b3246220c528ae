"""Whether a model fits on a machine, over how many of its GPUs, and how many tokens its memory then holds."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.bench.planning.machines import Machine
from penstock.bench.planning.model_size import BLOCK_SIZE, ModelSize
from penstock.shard.execution.gpu_memory import HEADROOM
from penstock.shard.execution.kv_cache import DEFAULT_MAX_BLOCKS
from penstock.shard.models.keys import ModelConfigError

STEP_TOKENS = 4096
"""Tokens of the largest step: --max-batch-prefill-tokens."""
STEP_ROWS = 128
"""Sequences that run at once at the most: --max-batch-size."""
SHARDS = 1, 2, 4, 8


@dataclass(frozen=True)
class Fit:
    """A group of `num_shards` GPUs of a machine, which has so many groups, and the tokens that each of them holds."""

    machine: Machine
    num_shards: int
    kv_tokens: int

    @property
    def groups(self) -> int:
        return self.machine.number // self.num_shards


def step_memory(size: ModelSize) -> int:
    """Returns about how many bytes the largest step makes on each GPU beside what it keeps: a few rows of the residual
    stream and of a feed-forward network for each token, and float32 logits, twice, for each sequence."""
    config = size.config
    inner = max(config.inner_sizes.values(), default=0)
    return STEP_TOKENS * (6 * config.hidden_size + 3 * inner) * size.dtype.itemsize + 8 * STEP_ROWS * config.vocab_size


def kv_tokens(size: ModelSize, machine: Machine, num_shards: int) -> int:
    """Returns how many tokens' keys and values fit beside the weights; below 0 if these do not fit themselves."""
    total = machine.accelerator.memory_bytes
    room = int(total * (1 - HEADROOM)) - size.weight_bytes // num_shards - step_memory(size)
    room -= STEP_ROWS * size.state_bytes // num_shards
    per_block = size.kv_shape(num_shards).block_bytes
    blocks = room // per_block if per_block else DEFAULT_MAX_BLOCKS
    return BLOCK_SIZE * min(blocks, DEFAULT_MAX_BLOCKS)


def fits(size: ModelSize, machine: Machine, needed: int) -> Iterator[Fit]:
    """Yields the numbers of shards over which the model fits, with room for a sequence of `needed` tokens."""
    for num_shards in SHARDS:
        if machine.number % num_shards or not _can_split(size, num_shards):
            continue
        tokens = kv_tokens(size, machine, num_shards)
        if tokens >= needed:
            yield Fit(machine, num_shards, tokens)


def _can_split(size: ModelSize, num_shards: int) -> bool:
    try:
        size.config.check_world_size(num_shards)
    except ModelConfigError:
        return False
    return True
