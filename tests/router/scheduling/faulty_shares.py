"""Orders of service with a fault planted in each, which the checks of shares have to find."""

from collections.abc import Iterable
from collections.abc import Sequence as Items

from penstock.router.scheduling.confirmed import Confirmed
from penstock.router.scheduling.in_order import by_order
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.shares import Lane, Shares


class FirstCome(Shares):
    """Those that came first are served first, whoever sent them."""

    def in_turn(self, is_background: bool) -> Iterable[Sequence]:
        return sorted(super().in_turn(is_background), key=by_order)


class Unweighted(Shares):
    """All tenants have equal shares."""

    def _charge(self, sequence: Sequence, service: int) -> None:
        self._lane(sequence).served += service


class ByRequests(Shares):
    """Requests are counted, not what they take."""

    def admitted(self, sequence: Sequence) -> None:
        self._charge(sequence, 1)

    def answered(self, sequence: Sequence, confirmed: Iterable[Confirmed]) -> None:
        """Nothing is counted."""


class WithoutPrompts(Shares):
    """The tokens of prompts are not counted."""

    def admitted(self, sequence: Sequence) -> None:
        """Nothing is counted."""


class SavesUp(Shares):
    """Who comes back after a while has a claim to what it has not asked for."""

    def _enter(self, sequence: Sequence) -> None:
        lane = self._lane(sequence)
        served = lane.served
        super()._enter(sequence)
        lane.served = served


class PreemptsTheLast(Shares):
    """The last that came is preempted, whoever sent it."""

    def last(self, running: Items[Sequence]) -> Sequence:
        return running[-1]


class PaysForPreemption(Shares):
    """A tenant is charged once more for what is computed once more."""

    def admitted(self, sequence: Sequence) -> None:
        sequence.is_charged = False
        super().admitted(sequence)


class OneCounter(Shares):
    """The background is counted with all else of its tenant."""

    def _charge(self, sequence: Sequence, service: int) -> None:
        super()._charge(sequence, service)
        if sequence.is_background and sequence.tenant is not None:
            self._lanes.setdefault((False, sequence.tenant.name), Lane()).served += service


ALL = [FirstCome, Unweighted, ByRequests, WithoutPrompts, SavesUp, PreemptsTheLast, PaysForPreemption, OneCounter]
