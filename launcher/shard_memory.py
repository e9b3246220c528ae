"""The memory of a shard's keys and values, held by the launcher, so that it outlives the shard."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from penstock.system.memory_file import HEADER_BYTES


class ShardMemory:
    """A file without a name, whose bytes are memory; the shard of a rank inherits it as `fd`."""

    def __init__(self, rank: int) -> None:
        self.fd = os.memfd_create(f"penstock-{rank}")

    def discard(self) -> None:
        """Gives the memory back to the system, because what is in it may be wrong; its first page stays."""
        if os.fstat(self.fd).st_size > HEADER_BYTES:
            os.ftruncate(self.fd, HEADER_BYTES)


@contextmanager
def shard_memories(num_shards: int) -> Iterator[Sequence[ShardMemory]]:
    """Yields a memory for each shard, or none where the system has no such files."""
    with ExitStack() as stack:
        memories = [ShardMemory(rank) for rank in range(num_shards)] if hasattr(os, "memfd_create") else []
        for memory in memories:
            stack.callback(os.close, memory.fd)
        yield memories
