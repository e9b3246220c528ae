"""Sizes the KV memory of one shard and allocates the caches of its layers."""

import logging
from dataclasses import dataclass

import torch

from penstock.kernels import dispatch
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.paged_attention import allocate_cache, block_bytes
from penstock.shard.devices.machine import available_memory
from penstock.shard.execution.kept_memory import KeptMemory

log = logging.getLogger(__name__)

DEFAULT_SHARE = 0.25                     # of the memory that is available when the weights are loaded
GROWTH = 96 << 20                        # bytes that a shard, with its part of the router, comes to need beside that
DEFAULT_MAX_BLOCKS = 1 << 18             # of tiny models: the router keeps an entry for each
HEADROOM = 64 << 20                      # bytes of the free memory that a shard's steps and requests may come to need
MIN_TOKENS = 256
KV_DTYPES = {"int8": torch.int8, "fp8_e4m3fn": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class KvMemoryError(ValueError):
    """Says by how much the KV memory is too small to serve anything."""


@dataclass(frozen=True, slots=True)
class KvShape:
    """Describes the parts of one shard's KV memory. `num_kv_heads` are this shard's."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    token_bytes: int = 0                 # of each token, which something else than the caches takes

    @property
    def block_bytes(self) -> int:
        """Returns the bytes of one block in all layers."""
        return self.num_layers * self._cache_bytes + self.block_size * self.token_bytes

    @property
    def _cache_bytes(self) -> int:
        """Returns the bytes of one block in one layer."""
        return block_bytes(
            block_size=self.block_size, num_kv_heads=self.num_kv_heads, head_dim=self.head_dim, dtype=self.dtype)

    def least_blocks(self, context_length: int) -> int:
        """Returns how many blocks it takes to serve even short requests."""
        return -(-min(MIN_TOKENS, context_length) // self.block_size)

    def allocate(self, num_blocks: int, kept: KeptMemory | None = None) -> list[KvCache]:
        """Returns a cache for each layer: in memory that is new, or in what is kept. The system gives a processor's
        memory as it is first written to."""
        size = num_blocks * self._cache_bytes
        memories = [None] * self.num_layers if kept is None else kept.map([size] * self.num_layers)
        return [
            allocate_cache(num_blocks, block_size=self.block_size, num_kv_heads=self.num_kv_heads,
                           head_dim=self.head_dim, dtype=self.dtype, device=dispatch.device(), memory=memory)
            for memory in memories]


def cache_dtype(name: str | None) -> torch.dtype | None:
    """Returns the dtype that --kv-cache-dtype names, None for the model's own.

    Raises ValueError if this shard's kernels have no such cache.
    """
    if name and name != "int8" and dispatch.kernel_set() == "cpu":
        raise ValueError(f"--kv-cache-dtype {name}: a processor has no instructions for such numbers; int8, which "
                         "takes as little memory, can be had")
    return KV_DTYPES[name] if name else None


def check_kv_memory(kv_memory: int, world_size: int) -> None:
    """Raises KvMemoryError if the shards on this machine can't have `kv_memory` bytes each."""
    headroom = HEADROOM * world_size
    most = max(0, available_memory() - headroom)
    if kv_memory * world_size > most:
        times = f"{world_size} times " if world_size > 1 else ""
        raise KvMemoryError(f"--kv-memory: {times}{kv_memory} bytes are more than the {most} available besides "
                            f"{headroom} for steps and requests; leave it out for a quarter of what there is")


def kv_budget(shape: KvShape, kv_memory: int | None, context_length: int, world_size: int) -> int:
    """Returns the bytes that a shard keeps of sequences: `kv_memory`, or if it is None its part of the free memory."""
    if kv_memory is not None:
        return kv_memory
    one_context = -(-context_length // shape.block_size) * shape.block_bytes
    return _default_memory(available_memory(), world_size, one_context)


def num_blocks(
    shape: KvShape, kv_memory: int | None, context_length: int, world_size: int, before: int | None = None,
    others: int = 0,
) -> int:
    """Returns how many blocks fit into `kv_memory` bytes, or if it is None into this shard's part of the free memory,
    less the bytes of `others`.

    A shard that takes the place of a dead one, whose group began with `before` blocks, has as many if there is memory
    for them.

    The log warns of a memory that holds less than one full context. Raises KvMemoryError if it holds too little to
    serve even short requests.
    """
    most = max(0, available_memory() - HEADROOM * world_size)
    if before is not None and before * shape.block_bytes * world_size <= most:
        return before
    memory = kv_budget(shape, None, context_length, world_size)
    if kv_memory is not None:
        memory = kv_memory if before is None else min(kv_memory, memory)
    memory -= others
    blocks = memory // shape.block_bytes if shape.block_bytes else DEFAULT_MAX_BLOCKS
    if kv_memory is None:
        blocks = min(blocks, DEFAULT_MAX_BLOCKS if before is None else before)
    needed = shape.least_blocks(context_length)
    if blocks < needed:
        raise KvMemoryError(
            f"{memory} bytes of KV memory hold {blocks} blocks of {shape.block_size} tokens and {needed} are the "
            f"least: {needed * shape.block_bytes - memory} bytes are missing, "
            f"set --kv-memory to {needed * shape.block_bytes} or more")
    if blocks * shape.block_size < context_length:
        log.warning("%d bytes of KV memory hold %d tokens, less than the context of %d: set --kv-memory higher",
                    memory, blocks * shape.block_size, context_length)
    return blocks


def _default_memory(available: int, world_size: int, one_context: int) -> int:
    """Returns the bytes of a shard that was told no number: a quarter of what all of them leave when they have grown.
    Where that is less than `one_context`, the requests of few people come first, and the quarter is of all."""
    rest = max(0, available - world_size * GROWTH)
    quarter, careful = (int(size * DEFAULT_SHARE) // world_size for size in (available, rest))
    return max(careful, min(quarter, one_context))
