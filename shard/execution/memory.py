"""What one shard keeps of sequences: keys and values in blocks, and in hybrid models a state for each slot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.kernels import dispatch
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvMemoryError, KvShape
from penstock.shard.execution.step import BlockCopy
from penstock.shard.fallback.alone import OwnStates
from penstock.shard.models.model import MemoryLayout, SequenceState

STATES_SHARE = 0.5
"""The most of its memory that a shard has for states; the rest is for keys and values."""


@dataclass(frozen=True, slots=True)
class States:
    """Describes the states of a model some of whose layers have one."""

    shape: SequenceState
    layers: frozenset[int]

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of one sequence's states in all these layers."""
        return self.shape.num_bytes * len(self.layers)

    def number(self, memory: int, most: int) -> int:
        """Returns how many sequences have their states in a part of `memory` bytes, at most `most`.

        Raises KvMemoryError if not even one has.
        """
        if not self.num_bytes:           # of a stage whose layers have none
            return most
        room = int(memory * STATES_SHARE) // self.num_bytes
        if room < 1:
            least = int(self.num_bytes / STATES_SHARE)
            raise KvMemoryError(f"the recurrent state of one sequence takes {self.num_bytes} bytes, and half of the "
                                f"{memory} for keys, values and states is less: set --kv-memory to {least} or more")
        # A power of two: a shard that takes another's place may find a little less memory, and is to have as many.
        return min(most, 1 << (room.bit_length() - 1))


def allocate(
    layout: MemoryLayout, kv: KvShape, num_blocks: int, num_states: int, kept: KeptMemory | None = None
) -> Sequence[LayerMemory]:
    """Returns the memory of each of a model's layers: a cache, or states. kept: where the caches lie, if they are to
    outlive the shard; states do not"""
    caches = iter(kv.allocate(num_blocks, kept))
    if layout.state is None:
        return list(caches)
    return [layout.state.allocate(num_states, dispatch.device()) if layer in layout.state_layers else next(caches)
            for layer in range(layout.num_layers)]


def copy_blocks(memories: Iterable[LayerMemory], copies: Sequence[BlockCopy]) -> None:
    """Copy what blocks hold into others, in the caches of all layers. Nothing waits for a device."""
    for memory in memories:
        for copy in copies if isinstance(memory, KvCache) else ():
            memory.data[copy.target].copy_(memory.data[copy.source])


def forget(memories: Iterable[LayerMemory], slots: Iterable[int]) -> None:
    """Let go of what is kept of sequences that are gone, where their memory is not simply written again."""
    for memory in memories:
        if isinstance(memory, OwnStates):
            memory.forget(slots)
