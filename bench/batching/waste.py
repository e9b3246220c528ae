"""How much of the memory that sequences hold has no keys and values in it, by two ways to give memory to them."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.router.scheduling.sequence import Sequence


@dataclass
class Waste:
    """Adds up tokens over steps: those that the running sequences have computed, the room of the blocks that they hold,
    and the room of contiguous memory, where each has its longest possible text reserved for as long as it runs."""

    stored: int = 0
    in_blocks: int = 0
    contiguous: int = 0

    def observe(self, running: Iterable[Sequence], block_size: int) -> None:
        for sequence in running:
            self.stored += sequence.computed
            self.in_blocks += len(sequence.blocks) * block_size
            self.contiguous += sequence.max_length

    @property
    def of_blocks(self) -> float:
        """Returns the share of the blocks' room that is empty."""
        return 1 - self.stored / self.in_blocks

    @property
    def of_contiguous(self) -> float:
        """Returns the share of contiguous room that would be empty for the same sequences in the same steps."""
        return 1 - self.stored / self.contiguous
