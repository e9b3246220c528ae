"""Computes how much of a GPU's memory keys and values get: what the weights and the largest step leave."""

from dataclasses import dataclass

import torch

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu, machine
from penstock.shard.execution.kv_cache import DEFAULT_MAX_BLOCKS, KvMemoryError, KvShape, num_blocks
from penstock.shard.execution.slots import Bounds
from penstock.shard.models.keys import Keys
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.models.reading import DTYPES, dtype_of, is_native, read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.dense import dense_everywhere
from penstock.shard.weights.format import memory_of
from penstock.system.settings import POOLINGS

HEADROOM = 0.02                          # of the GPU's memory: for what falls between the pieces it is dealt out in
GRAPH_BYTES = 16 << 20                   # of a captured graph, beside its tensors
HELP_WITHOUT_GPU = "What helps: more memory, or smaller numbers (--dtype bfloat16)."


@dataclass(frozen=True, slots=True)
class Needs:
    """Tells what a GPU's memory is needed for beside keys and values, in bytes."""

    total: int
    foreign: int                         # used by others, and by this process beside its tensors
    tensors: int                         # the weights, and what the largest step makes
    graphs: int

    def room(self, fraction: float) -> int:
        """Returns the bytes that are left if `fraction` of the GPU's memory may be used; below 0 if it is too little.
        """
        allowed = min(int(self.total * fraction), self.total - self.foreign)
        return allowed - self.tensors - self.graphs - int(self.total * HEADROOM)


def blocks_that_fit(shape: KvShape, needs: Needs, config: ShardConfig, context_length: int) -> int:
    """Returns how many blocks fit beside `needs`, or how many --kv-memory asks for. There is room for one more block.

    Raises KvMemoryError, which says how much is missing, and what helps.
    """
    room = needs.room(config.cuda_memory_fraction) - shape.block_bytes - config.adapter_memory
    least = shape.least_blocks(context_length) * shape.block_bytes
    if room < (config.kv_memory or least):
        raise KvMemoryError(_does_not_fit(needs, config, config.kv_memory or least, room))
    memory = min(room, DEFAULT_MAX_BLOCKS * shape.block_bytes) if config.kv_memory is None else config.kv_memory
    return num_blocks(shape, memory, context_length, world_size=1)


def options_of(config: ShardConfig) -> ModelOptions:
    """Returns the model's options among the settings."""
    return ModelOptions(
        config.quantize, config.activations, config.rope_scaling, config.rope_factor or 1.0,
        config.model_impl, None if config.task == "auto" else config.task,
        None if config.pooling is None else POOLINGS[config.pooling])


def check_weights(config: ShardConfig, free: int) -> None:
    """Raises KvMemoryError if `free` bytes cannot hold this rank's part of the weights, or the angles of all positions,
    before any of it is made.

    Raises also what reading a checkpoint's headers raises.
    """
    options = options_of(config)
    model = read_model_config(config.model, options) if is_native(config.model, options) else None
    own_dtype = dtype_of(Keys.read(config.model / "config.json"), config.model)
    dtype = DTYPES[config.dtype] if config.dtype else own_dtype
    format_of = model.format_of if model else dense_everywhere
    needed = memory_of(Checkpoint(config.model), format_of, dtype) // config.world_size
    holder, wishes = ("its GPU", _help(config)) if gpu.is_used() else (_machine_of(config), HELP_WITHOUT_GPU)
    if needed > free:
        raise KvMemoryError(f"The weights do not fit: this shard's part of them takes {_size(needed)}, {holder} has "
                            f"{_size(free)} free, {_size(needed - free)} are missing. {wishes}")
    if model and needed + model.angle_bytes > free:
        raise KvMemoryError(
            f"{config.model / 'config.json'}: max_position_embeddings {model.context_length} with head_dim "
            f"{model.attention.head_dim}: the angles of all positions take {_size(model.angle_bytes)}, {holder} has "
            f"{_size(free - needed)} free beside the weights")


def part_of_memory(group: Group) -> int:
    """Returns this shard's part of the machine's free memory. All ranks call it before any of them takes memory for
    its weights, and none does until all have looked."""
    free = group.all_gather(torch.tensor([machine.available_memory()]))
    return int(free.min()) // group.num_local


def _machine_of(config: ShardConfig) -> str:
    return "the machine" if config.num_local == 1 else f"a shard's part (1/{config.num_local}) of the machine"


def out_of_memory(config: ShardConfig, error: Exception) -> KvMemoryError:
    """Returns the error to raise in place of CUDA's own, which does not say what helps."""
    return KvMemoryError(f"The model does not fit, or not the largest step of {config.max_step_tokens} tokens in "
                         f"{config.max_step_rows} rows. {_help(config)} In detail: {str(error).splitlines()[0]}")


def graph_bytes(largest: int, results: int, number: int) -> int:
    """Returns the bytes that so many graphs take, which share their memory but for their results.

    largest  bytes that the largest of their steps takes
    results  bytes of what all of them return
    """
    return largest + results + number * GRAPH_BYTES


def check_room(config: ShardConfig, needed: int, free: int, kv_bytes: int) -> None:
    """Raises KvMemoryError if the largest step needs more bytes than are free once keys and values, of `kv_bytes`, are
    there and the graphs are captured."""
    missing = needed - free
    if missing > 0:
        memory = f"a --kv-memory of {kv_bytes - missing} or less, " if kv_bytes > missing else ""
        raise KvMemoryError(
            f"The largest step of {config.max_step_tokens} tokens in {config.max_step_rows} rows does not fit beside "
            f"weights, keys and values ({kv_bytes} bytes), and graphs: it takes {_size(needed)}, the GPU has "
            f"{_size(free)} left, {_size(missing)} are missing. What helps: {memory}a --max-batch-prefill-tokens "
            f"below {config.max_step_tokens}, --cuda-graphs 0, or ending what else is on the GPU.")


def trial_blocks(shape: KvShape, config: ShardConfig, context_length: int) -> int:
    """Returns how many blocks the largest step needs, which then shows how many there can be."""
    prompts = -(-config.max_step_tokens // context_length)
    step = config.max_step_tokens // shape.block_size + 1 + prompts + config.max_step_rows
    return max(step, shape.least_blocks(context_length))


def largest_lengths(bounds: Bounds, num_tokens: int, num_rows: int) -> list[int]:
    """Returns the lengths of the prompts of the step that takes most memory: many of one token, for each has its
    logits, and of the rest as few as the context allows. The KV memory holds them; texts that are computed whole need
    none, and have no logits."""
    if bounds.is_whole:
        context = bounds.context_length
        return [min(context, num_tokens - begin) for begin in range(0, num_tokens, context)]
    states = num_rows if bounds.num_states is None else bounds.num_states
    num_short = max(0, min(num_rows, states, num_tokens, bounds.num_blocks // 2) - 1)
    lengths = [1] * num_short
    num_tokens, num_blocks = num_tokens - num_short, bounds.num_blocks - num_short
    while num_tokens and num_blocks and (bounds.num_states is None or len(lengths) < bounds.num_states):
        lengths.append(min(num_tokens, bounds.context_length, num_blocks * bounds.block_size))
        num_tokens -= lengths[-1]
        num_blocks -= -(-lengths[-1] // bounds.block_size)
    return lengths


def _does_not_fit(needs: Needs, config: ShardConfig, wanted: int, room: int) -> str:
    share = "" if config.cuda_memory_fraction == 1 else f" (of which {config.cuda_memory_fraction:g} may be used)"
    return (f"The model does not fit: of the GPU's {_size(needs.total)}{share} others use {_size(needs.foreign)}, "
            f"weights and the largest step of {config.max_step_tokens} tokens {_size(needs.tensors)}, graphs "
            f"{_size(needs.graphs)}, {_size(int(needs.total * HEADROOM))} stay free, and keys and values need "
            f"{_size(wanted)}: {_size(wanted - room)} are missing. {_help(config)}")


def _help(config: ShardConfig) -> str:
    fraction = ("" if config.cuda_memory_fraction == 1
                else f", a --cuda-memory-fraction above {config.cuda_memory_fraction:g}")
    memory = "" if config.kv_memory is None else ", a smaller --kv-memory"
    return (f"What helps: more GPUs (--num-shard above {config.world_size}), smaller numbers (--dtype bfloat16, "
            f"--kv-cache-dtype fp8_e4m3fn), a --max-batch-prefill-tokens below {config.max_step_tokens}{fraction}"
            f"{memory}, or ending what else is on the GPU.")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
