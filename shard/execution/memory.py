"""One shard's memory of sequences: keys and values in blocks, and in hybrid models a state for each slot. Of texts that
are computed whole nothing is kept."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from penstock.contract.block_copy import BlockCopy
from penstock.kernels import dispatch
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.communication.stages import Stages
from penstock.shard.config import ShardConfig
from penstock.shard.execution.graphs import StepGraphs
from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvMemoryError, KvShape
from penstock.shard.execution.loaded_model import LoadedModel
from penstock.shard.execution.sizes import Sizes
from penstock.shard.execution.slots import Bounds
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


class SequenceMemory:
    """Holds the caches and states of a shard's model, beside the draft model's own caches, and the graphs that steps
    were captured in over them. Every rank of the group is given the same orders.

    Raises KvMemoryError if there is too little memory to serve anything.
    """

    def __init__(self, config: ShardConfig, stages: Stages, loaded: LoadedModel, sizes: Sizes) -> None:
        self._config = config
        self._stages = stages
        self._facts = loaded.model.facts
        self._drafter = loaded.drafter
        self.kv_shape = loaded.kv_shape
        layout = self._facts.layout
        self.states = None if layout.state is None else States(layout.state, layout.state_layers)
        name = (loaded.numerics, *loaded.name, str(self.kv_shape), stages.everyone.rank, stages.everyone.world_size,
                stages.count)
        self.kept = sizes.keep(repr(name)) if layout.num_caches else None
        self.num_states = self._least_of_all(self._num_states(sizes))
        """How many sequences can run at once because of their states; 0 if they have none."""
        self.graphs: StepGraphs | None = None  # captured once the memory has its size
        self.allocate(self._least_of_all(self._num_blocks(sizes)))

    def allocate(self, num_blocks: int) -> None:
        """Replace the memory by one of so many blocks, and of one more that no order names: the rows that pad a
        captured step write there. So they do in one more state."""
        self.caches: Sequence[LayerMemory] = []  # what was before must go first
        self.bounds = Bounds(self._config.block_size, num_blocks, self._facts.context_length, self._facts.vocab_size,
                             self.num_states or None, self._drafter.context_length, self._facts.layout.is_whole,
                             self._facts.pooler is not None)
        self._drafter.allocate(num_blocks + 1)
        self.caches = self._allocate(num_blocks + 1, self.kept)

    def release(self) -> None:
        """Let go of all memory."""
        if self.kept is not None:
            self.kept.close()
        self.caches = self._drafter.caches = []

    @contextmanager
    def aside(self, num_blocks: int) -> Iterator[None]:
        """Lets steps run in a little memory of their own while the block runs: those as they are, for captured ones
        have the memory that they were captured with."""
        own = self.caches, self.bounds, self.graphs
        self.caches, self.bounds = self._allocate(num_blocks), replace(self.bounds, num_blocks=num_blocks)
        self.graphs = None
        try:
            with self._drafter.aside(num_blocks):
                yield
        finally:
            self.caches, self.bounds, self.graphs = own

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy what blocks hold into others, in the caches of all layers. Nothing waits for a device."""
        for memory in [*self.caches, *self._drafter.caches] if copies else ():
            for copy in copies if isinstance(memory, KvCache) else ():
                memory.data[copy.target].copy_(memory.data[copy.source])

    def forget(self, slots: Iterable[int]) -> None:
        """Let go of what is kept of sequences that are gone, where their memory is not simply written again."""
        for memory in self.caches:
            if isinstance(memory, OwnStates):
                memory.forget(slots)

    def forget_all(self) -> None:
        self.forget(range(self.num_states + 1))

    def _allocate(self, num_blocks: int, kept: KeptMemory | None = None) -> Sequence[LayerMemory]:
        return allocate(self._facts.layout, self.kv_shape, num_blocks, self.num_states + 1, kept)

    def _least_of_all(self, number: int) -> int:
        """Returns the least that a rank of several stages has of something, for they have different layers: what others
        have more would stay unused. One with memory that it must leave as it is has as much as before."""
        if self._stages.count == 1:
            return number
        least = int(self._stages.everyone.all_gather(torch.tensor([number])).min())
        return number if self.kept and self.kept.found else least

    def _num_states(self, sizes: Sizes) -> int:
        if self.states is None:
            return 0
        if self.kept and self.kept.found and self.kept.found.num_states:
            return self.kept.found.num_states
        memory = sizes.for_states(self.kv_shape, self._facts.context_length)
        return self.states.number(memory, self._config.max_step_rows)

    def _num_blocks(self, sizes: Sizes) -> int:
        if self._facts.layout.is_whole:
            return 0
        found = self.kept.found if self.kept else None
        if found is not None and found.is_whole:
            return found.num_blocks
        states = self.num_states * self.states.num_bytes if self.states else 0
        return sizes.num_blocks(
            self.kv_shape, self._facts.context_length, states, found.first_blocks if found else None)
