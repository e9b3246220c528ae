"""The record of a sequence from the deaths of groups that ran it."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class DeathRecord:
    """Belongs to one sequence, and goes with it when another group runs it."""

    cleared_at: int | None = None
    """The number of confirmed tokens at which it is no longer suspected of having killed the group, while it is."""
    is_narrowed: bool = False
    """Whether it is one of several suspects with which a group has died again; only where it is suspected."""
    num_pardons: int = 0
    """How often more it is not accused when the group dies with it and with suspects: it was accused and cleared."""
    num_deaths_guessing: int = 0
    """How often a group died while guesses of this sequence were verified."""
    num_solo_deaths: int = 0
    """How often in a row a group died with nothing but this sequence in flight."""

    def clear(self) -> None:
        """Notes that the sequence is no suspect any more."""
        self.cleared_at = None
        self.is_narrowed = False
        self.num_solo_deaths = 0


class Released(NamedTuple):
    """The parts of a sequence that go with it to another group: its age, its confirmed output, and its record."""

    age: int
    output: list[int]
    record: DeathRecord
