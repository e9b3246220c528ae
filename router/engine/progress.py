"""Whether what runs gets on."""

from collections.abc import Iterable

from penstock.router.scheduling.plan import Plan


class Progress:
    """When the sequence in each slot last got on: by a token, by a part of its prompt, or by beginning to run.

    Times are of `time.monotonic`.
    """

    def __init__(self) -> None:
        self._times: dict[int, float] = {}

    def planned(self, plan: Plan, now: float) -> None:
        """What begins to run is new in its slot."""
        for row in plan.rows:
            if row.initial_state is not None:
                self._times[row.slot] = now

    def committed(self, plan: Plan, now: float) -> None:
        """The result of a step is back."""
        for row in plan.rows:
            self._times[row.slot] = now

    def stalled_seconds(self, slots: Iterable[int], now: float) -> float:
        """The longest time without any progress in these slots; 0 for none."""
        return max((now - self._times.get(slot, now) for slot in slots), default=0.0)
