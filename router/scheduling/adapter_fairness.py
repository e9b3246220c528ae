"""Whose turn it is where adapters are too many to be loaded at once: nobody waits for ever."""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items

from penstock.router.scheduling.residency import AdapterState, Residency
from penstock.router.scheduling.sequence import Sequence


class AdapterFairness:
    """Decides, in one round of admissions, who may run by the adapter that it needs; asked oldest first.

    One whose adapter has no room is passed by younger ones whose adapters are loaded, `most` times at most. Then no
    younger one with an adapter begins, so that those in use come free. Sequences without an adapter always may.
    """

    def __init__(self, residency: Residency, most: int) -> None:
        self._residency = residency
        self._most = most
        self._passed: list[Sequence] = []

    def admits(self, sequence: Sequence) -> bool:
        """Tells whether a sequence with an adapter may run now."""
        if not self._residency.is_loaded(sequence.adapter):
            if self._residency.state(sequence.adapter) is AdapterState.KNOWN and may_fit(sequence, self._residency):
                self._passed.append(sequence)
            return False
        return all(older.num_passed < self._most for older in self._passed)

    def admitted(self) -> None:
        """Notes that a sequence with an adapter begins to run."""
        for older in self._passed:
            older.num_passed += 1


def adapter_victim(sequence: Sequence, running: Items[Sequence], residency: Residency) -> Sequence | None:
    """Returns the last running one whose adapter leaves no room for that of a sequence; None if there is room, or none
    of them is to blame."""
    if not residency.is_crowded_out(sequence.adapter):
        return None
    return next((each for each in reversed(running) if each.adapter not in (0, sequence.adapter)), None)


def wanted_adapters(waiting: Iterable[Sequence], residency: Residency, most: int) -> Iterator[int]:
    """Yields the adapters of those that wait, in the order in which they are to run, up to one that was passed too
    often and still has none. A beam that is undecided wants none, for it may wait for those who want another one."""
    for sequence in waiting:
        if sequence.adapter and not sequence.is_undecided:
            yield sequence.adapter
            if sequence.num_passed >= most and not residency.is_loaded(sequence.adapter) and may_fit(
                    sequence, residency):
                return


def may_fit(sequence: Sequence, residency: Residency) -> bool:
    """Tells whether there would be room for a sequence's adapter if all others of its class let go of theirs. One of
    the background that does not fit beside those of others keeps none from running."""
    return not sequence.is_background or residency.fits_beside_others(sequence.adapter)
