"""For how long sequences have waited, and what for."""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.wait_reasons import WaitReason


class Return(StrEnum):
    """Why a sequence that has run before waits again. That is what it waits for then, whatever else it lacks."""

    PREEMPTED = "preempted"
    """Others needed its memory."""
    REPLAYED = "replayed"
    """Its group was lost."""
    MOVED = "moved"
    """Another group ran it, and can't any more."""


class _Crowd:
    """Those of a class that wait, of whom most wait for the same thing: the time that passes is counted once for all of
    them, and each remembers what the counts were when it came."""

    def __init__(self) -> None:
        self.reason = WaitReason.NEW
        """Why all wait since the latest plan that were not passed by one by one."""
        self.totals = dict.fromkeys(WaitReason, 0.0)
        self.passed: list[tuple[Sequence, WaitReason]] = []
        """Those that the latest plan has looked at one by one."""

    def settle(self, seconds: float) -> None:
        """Counts the time since the latest plan."""
        self.totals[self.reason] += seconds
        for sequence, reason in self.passed:
            if sequence.status is Status.WAITING and sequence.counts_before is not None:
                sequence.usage.waited(reason, seconds)
                sequence.counts_before[self.reason] += seconds
        self.passed.clear()
        self.reason = WaitReason.NEW


class Waits:
    """Tells why sequences wait since the latest plan, and counts for each request for how long it waited for what.
    Thousands may wait, so that no plan looks at each. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._planned_at = clock()
        self._crowds = {False: _Crowd(), True: _Crowd()}
        self.num_plans = 0
        self.numbers: Counter[WaitReason] = Counter()
        """How many wait for what, as the latest plan has found."""

    def plan(self) -> None:
        """Begins to tell anew, for another plan."""
        now = self._clock()
        for crowd in self._crowds.values():
            crowd.settle(now - self._planned_at)
        self._planned_at = now
        self.num_plans += 1
        self.numbers.clear()

    def begin(self, sequence: Sequence) -> None:
        """Takes in that a sequence begins to wait, for its `wait_cause` if it has one. Of the beams of a search only
        the first is counted, which comes alone."""
        sequence.waits_since = now = self._clock()
        if sequence.wait_cause is Return.REPLAYED:
            sequence.usage.vain_seconds += now - sequence.charged_at
        is_counted = not sequence.is_beam or len(sequence.tokens) == sequence.prompt_length
        if is_counted and sequence.wait_cause is None:
            crowd = self._crowds[sequence.is_background]
            sequence.counts_before = {**crowd.totals}
            sequence.counts_before[crowd.reason] += now - self._planned_at

    def hold(self, is_background: bool, reason: WaitReason, number: int) -> None:
        """Says why the last `number` of a class wait."""
        self._crowds[is_background].reason = reason
        self.numbers[reason] += number

    def hold_all(self, reason: WaitReason, number: int = 0) -> None:
        """Says why all wait, of whom there are so many."""
        for crowd in self._crowds.values():
            crowd.reason = reason
        if number:
            self.numbers[reason] += number

    def pass_by(self, sequence: Sequence, reason: WaitReason) -> None:
        """Says why one sequence waits that is before those of its class that wait for another reason."""
        self._crowds[sequence.is_background].passed.append((sequence, reason))
        self.numbers[reason] += 1

    def end(self, sequence: Sequence) -> None:
        """Takes in that a sequence waits no more."""
        now, usage = self._clock(), sequence.usage
        if sequence.wait_cause is not None:
            if not sequence.is_beam:
                usage.waited(sequence.wait_cause, now - sequence.waits_since)
        elif sequence.counts_before is not None:
            crowd = self._crowds[sequence.is_background]
            for reason, before in sequence.counts_before.items():
                usage.waited(reason, crowd.totals[reason] - before)
            usage.waited(crowd.reason, now - max(self._planned_at, sequence.waits_since))
        sequence.counts_before = sequence.wait_cause = None
        sequence.charged_at = now
