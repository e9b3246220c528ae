"""How busy a scheduler is, in numbers."""

from collections.abc import Sequence as Items
from types import MappingProxyType
from typing import NamedTuple

from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.wait_reasons import WaitCounts, WaitReason, settled
from penstock.router.scheduling.waiting import Waiting


class Occupancy(NamedTuple):
    """Counts sequences, blocks of KV memory, and in the blocks that are held the positions without a token."""

    num_waiting: int = 0
    num_running: int = 0
    used_blocks: int = 0
    free_blocks: int = 0
    wasted_positions: int = 0
    step_tokens: int = 0
    """How many tokens a step may have now."""
    block_size: int = 0
    """In tokens."""
    waits: WaitCounts = MappingProxyType({})
    """Why those wait that wait."""
    background_waiting: int = 0
    """How many of those that wait are lines of batches; they ask for no more than is left."""
    background_running: int = 0
    background_blocks: int = 0
    """How many of the used blocks nobody else holds, at the least."""

    def while_away(self) -> "Occupancy":
        """Returns the occupancy of a group that is away: it has no memory to give, and that is why sequences wait."""
        return self._replace(free_blocks=0, waits={WaitReason.GROUP: self.num_waiting})


def occupancy_of(
    waiting: Waiting, running: Items[Sequence], memory: KvMemory, step_tokens: int, found: WaitCounts
) -> Occupancy:
    """Counts the sequences that wait, as the latest plan `found` why, and those that run."""
    wasted = sum(len(s.blocks) * memory.block_size - s.computed for s in running)
    others = [s for s in running if not s.is_background]
    num_background = len(running) - len(others)
    # Blocks that several hold count for each of them: to tell them apart would take too long after each step.
    others_blocks = sum(len(s.blocks) for s in others) if num_background else memory.num_held
    return Occupancy(len(waiting), len(running), memory.num_held, memory.num_available, wasted, step_tokens,
                     memory.block_size, settled(found, len(waiting)), waiting.num_background,
                     num_background, max(0, memory.num_held - others_blocks))


def load_before(is_background: bool, waiting: Waiting, running: Items[Sequence], memory: KvMemory) -> float:
    """Returns how much is to be done before one more sequence, in blocks: those that sequences hold, and the tokens of
    prompts, also of those that are to be computed again, that are not computed yet. The background does not count for
    a sequence that is not of it."""
    held = memory.num_held
    if not is_background:
        others = [s for s in running if not s.is_background]
        if len(others) < len(running):
            held = len({block for s in others for block in s.blocks})
        running = others
    left = waiting.num_left(is_background) + sum(max(0, s.prefill_end - s.computed) for s in running)
    return held + left / memory.block_size
