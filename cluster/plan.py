"""Decides what the keeper does next: pure, from the states of the groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.cluster.reports import Report, State


@dataclass(frozen=True, slots=True)
class Unit:
    """A group as the keeper knows it. Each part has its last report, or None if it has none yet."""

    name: str
    parts: tuple[Report | None, ...]
    is_lost: bool = False
    """Whether an actor of one part is dead, or was never made."""
    age: int = 0
    """Its place in the order in which groups were made or found."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it computes, as far as is known."""
        return all(part is None or part.state in (State.PLACED, State.ENDED) for part in self.parts)

    @property
    def is_leaving(self) -> bool:
        """Whether it is lost, ends or has ended."""
        return self.is_lost or any(
            part is not None and part.state in (State.STOPPING, State.ENDED) for part in self.parts)

    @property
    def is_ready(self) -> bool:
        return not self.is_lost and all(part is not None and part.state is State.READY for part in self.parts)

    @property
    def is_placed(self) -> bool:
        """Whether all parts have their places, and some are not started."""
        return not self.is_leaving and None not in self.parts and any(
            part is not None and part.state is State.PLACED for part in self.parts)

    @property
    def addresses(self) -> list[str]:
        return [part.address for part in self.parts if part is not None and part.address]


@dataclass(frozen=True, slots=True)
class Decision:
    """The next steps: how many groups to make, and the names of the groups to start, to drain, and to remove with their
    processes."""

    num_to_make: int
    start: list[str]
    stop: list[str]
    remove: list[str]
    addresses: list[str]
    """Where routers find groups."""


def decide(units: Sequence[Unit], num_groups: int) -> Decision:
    """Returns the steps that bring the number of groups nearer to `num_groups`. If there are too many, groups that
    answer nothing yet go first, then the youngest."""
    staying = [unit for unit in units if not unit.is_leaving]
    by_worth = sorted(staying, key=lambda unit: (not unit.is_ready, unit.age))
    extra = [unit.name for unit in by_worth[num_groups:]]
    broken = [unit.name for unit in units if unit.is_leaving and not unit.is_over and not _stops(unit)]
    unborn = [unit.name for unit in staying if unit.name in extra and unit.is_over]
    return Decision(
        num_to_make=max(0, num_groups - len(staying)),
        start=[unit.name for unit in staying if unit.is_placed and unit.name not in extra],
        stop=[*(name for name in extra if name not in unborn), *broken],
        remove=[unit.name for unit in units if unit.is_leaving and unit.is_over] + unborn,
        addresses=sorted(address for unit in units if not (unit.is_leaving and unit.is_over)
                         for address in unit.addresses))


def _stops(unit: Unit) -> bool:
    """Tells whether all parts that run have been told to end."""
    return all(part is None or part.state in (State.STOPPING, State.ENDED) for part in unit.parts)
