"""When waiting sequences may join those that run: at any step, or only where a whole batch begins.

The scheduler's own policy is `Continuous`. The other two are those that it is measured against, in benchmarks and in
simulations: no server has them. A batch of theirs has as many sequences as there are slots at most. It begins when
nobody has a slot any more, and nobody joins it later, even if its prompts take several steps.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.sequence import Sequence


class Batching(Protocol):
    """Is asked before a waiting sequence is admitted, and told if it was."""

    def may_join(self, sequence: Sequence, batch: Batch) -> bool: ...

    def joined(self, sequence: Sequence) -> None: ...

    def seal(self) -> None:
        """Takes in that there is no memory for one that might join."""

    def close(self) -> None:
        """Takes in that no more sequences will come."""


class Continuous:
    """Lets every sequence join as soon as there is room."""

    def may_join(self, sequence: Sequence, batch: Batch) -> bool:
        return True

    def joined(self, sequence: Sequence) -> None:
        """Nothing changes."""

    def seal(self) -> None:
        """Who finds no memory now may join later."""

    def close(self) -> None:
        """Nobody waits for others."""


class _Whole:
    """Lets a batch begin when it is due, of those that wait then."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._missing: set[int] = set()
        """The sequences that are still to join the batch that has begun."""

    def may_join(self, sequence: Sequence, batch: Batch) -> bool:
        if batch.is_empty:
            is_due = len(batch.waiting) >= self._num_slots or self._is_due()
            self._missing = {each.id for each in batch.waiting[:self._num_slots]} if is_due else set()
        return sequence.id in self._missing

    def joined(self, sequence: Sequence) -> None:
        self._missing.discard(sequence.id)

    def seal(self) -> None:
        self._missing.clear()

    def _is_due(self) -> bool:
        """Tells whether a batch begins that has fewer sequences than there are slots."""
        raise NotImplementedError


class Static(_Whole):
    """Lets a batch begin when enough sequences wait for all slots, or no more will come."""

    _is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def _is_due(self) -> bool:
        return self._is_closed


class Dynamic(_Whole):
    """Lets a batch begin when enough sequences wait for all slots, or some have waited for the delay since the batch
    before has ended. `clock` returns the time."""

    def __init__(self, num_slots: int, delay: float, clock: Callable[[], float]) -> None:
        super().__init__(num_slots)
        self._delay, self._clock = delay, clock
        self._since: float | None = None
        """Since when some wait, and nobody runs."""

    def joined(self, sequence: Sequence) -> None:
        super().joined(sequence)
        self._since = None

    def close(self) -> None:
        self._delay = 0.0

    def _is_due(self) -> bool:
        now = self._clock()
        if self._since is None:
            self._since = now
        return now - self._since >= self._delay
