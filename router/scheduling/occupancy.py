"""How busy a scheduler is, in numbers."""

from types import MappingProxyType
from typing import NamedTuple

from penstock.router.scheduling.wait_reasons import WaitCounts, WaitReason


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

    def while_away(self) -> "Occupancy":
        """Returns the occupancy of a group that is away: it has no memory to give, and that is why sequences wait."""
        return self._replace(free_blocks=0, waits={WaitReason.GROUP: self.num_waiting})
