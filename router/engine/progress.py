"""Notes when each running sequence last made progress, so that a router that hangs can be told from a busy one."""

from collections.abc import Iterable

from penstock.router.scheduling.plan import Plan


class Progress:
    """Remembers when the sequence in each slot last made progress: a token, a part of its prompt, or its first step.

    Times are of `time.monotonic`.
    """

    def __init__(self) -> None:
        self._times: dict[int, float] = {}

    def planned(self, plan: Plan, now: float) -> None:
        """Notes the time for the sequences that begin to run with this plan, each new in its slot."""
        for row in plan.rows:
            if row.initial_state is not None:
                self._times[row.slot] = now

    def committed(self, plan: Plan, now: float) -> None:
        """Notes the time for the sequences of a step whose result is back."""
        for row in plan.rows:
            self._times[row.slot] = now

    def stalled_seconds(self, slots: Iterable[int], now: float) -> float:
        """Returns the longest time that one of these slots has been without progress; 0 if there are none."""
        return max((now - self._times.get(slot, now) for slot in slots), default=0.0)
