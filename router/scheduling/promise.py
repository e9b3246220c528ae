"""Deadlines that clients ask for, and the promises that are made of them."""

from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, Self

from penstock.router.scheduling.estimate import Estimate
from penstock.router.scheduling.wait_reasons import WaitReason


@dataclass(frozen=True, slots=True)
class Deadline:
    """Says by when an answer has to be whole: `milliseconds` after its request came, which is at `due_at` of
    `time.monotonic`. Once that `is_promised` the request is not refused for it any more."""

    due_at: float
    milliseconds: int
    is_promised: bool = False

    def promised(self) -> Self:
        """Returns the same deadline, promised."""
        return replace(self, is_promised=True)


@dataclass(slots=True)
class Promise:
    """Says by when a sequence is to end, and since when it has to run for that. `expected` is the estimate by which it
    was promised at `made_at`, without any margin; None where another group has promised it."""

    due_at: float
    latest_start: float = inf
    made_at: float = 0.0
    expected: Estimate | None = None
    is_over: bool = False
    """Whether its time had passed at the latest plan, so that nobody makes way for it any more."""


class Verdict(NamedTuple):
    """Says whether a deadline can be met: the time that is `left` for it, how long the answer would take behind and
    beside others, and alone."""

    left: float
    estimate: Estimate
    alone: Estimate
    num_before: int
    """How many others would have to end, or to begin, before it runs."""
    breaks_another: bool = False
    """Whether another answer would be too late for it that was promised before."""
    obstacle: WaitReason | None = None
    """Why the sequence could not run for a time that nobody knows, if there is a reason."""

    @property
    def is_known(self) -> bool:
        """Whether all is known that it depends on."""
        return self.obstacle is None

    @property
    def can_be_met(self) -> bool:
        return self.is_known and not self.breaks_another and self.estimate.total <= self.left
