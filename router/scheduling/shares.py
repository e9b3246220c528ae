"""Whose turn it is where tenants have shares: that of the waiting tenant that was served least, for its share.

This is the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024). Each tenant
has a counter of the service that it got, divided by its share. Of those that wait, the one with the least counter has
its first sequence run next. A tenant that comes while it waits for nothing is lifted to the least counter of those that
wait: nobody saves up service by asking for none. While two tenants wait all the time, the service that they got, each
divided by its share, differs by no more than what one prompt and one batch of answers are worth, however many requests
each sends.

Service is counted as it is worth: a token of a prompt that is computed `INPUT`, when its sequence is admitted, so that
those behind it in the same step are in turn; a token of an answer `OUTPUT`, when it is known. Cached tokens cost
nothing, nor does what is computed once more or guessed in vain, for it was the server's choice: a tenant that paid for
being preempted would be the next one to be preempted again.

Where tenants have quotas of memory and none has a share, nothing is counted, and all are in turn by their order.

Where memory runs out, the last sequence of the tenant that is most ahead is preempted. Within a tenant the order is as
it is without shares, and the background, whose service is counted apart, comes after all others.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items
from heapq import heapify, heappop, heapreplace

from penstock.router.scheduling.confirmed import Candidates, Confirmed, Sampled
from penstock.router.scheduling.in_order import by_order, put_in, take_out
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.tenant import NOBODY

INPUT, OUTPUT = 1, 2
"""The service in a token of a prompt, and in one of an answer, which a step of its own is spent on: the weights of the
paper, and about the prices of those who sell tokens."""


class Lane:
    """A tenant's sequences of a class that wait, in their order, and how much service it got for its share. One that is
    passed has no other turn in the same plan."""

    __slots__ = ("is_passed", "served", "waiting")

    def __init__(self) -> None:
        self.served = 0.0
        self.waiting: list[Sequence] = []
        self.is_passed = False


class Turns:
    """Iterates over those that wait in some lanes, in the order in which they are to run; those that begin to run
    meanwhile count at once. Looks at no more of them than are asked for."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._lanes = lanes

    def __iter__(self) -> Iterator[Sequence]:
        heap = [(lane.served, by_order(lane.waiting[0]), 0, lane) for lane in self._lanes]
        heapify(heap)
        while heap:
            served, order, place, lane = heap[0]
            if place >= len(lane.waiting):
                heappop(heap)
            elif (now := (lane.served, by_order(lane.waiting[place]))) != (served, order):
                heapreplace(heap, (*now, place, lane))
            else:
                yield (sequence := lane.waiting[place])
                if lane.is_passed:
                    lane.is_passed = False
                    heappop(heap)
                elif place < len(lane.waiting) and lane.waiting[place] is sequence:
                    heapreplace(heap, (served, order, place + 1, lane))


class Shares:
    """Counts the service of tenants once one has come; until then nothing is looked at."""

    def __init__(self) -> None:
        self.is_on = False
        self._counts = False
        """Whether tenants have shares, as far as is known from the latest that has come."""
        self._lanes: dict[tuple[bool, str], Lane] = {}
        self._queued: dict[bool, dict[Lane, None]] = {False: {}, True: {}}
        """The lanes in which sequences wait, of the background and of all others."""
        self._last: dict[bool, Lane] = {}
        """The lanes that were the last in which any waited, where none does now."""

    def came(self, sequence: Sequence, waiting: Items[Sequence]) -> None:
        """Takes in that a sequence waits, which is one of those `waiting`."""
        if sequence.tenant is not None and self._counts != (sequence.tenant.share is not None):
            self._counts = not self._counts
            for lane in self._lanes.values():
                lane.served = 0.0
        if self.is_on:
            self._enter(sequence)
            return
        self.is_on = True
        for each in waiting:
            self._enter(each)

    def left(self, sequence: Sequence) -> None:
        """Takes in that a sequence waits no more."""
        lane, queued = self._lane(sequence), self._queued[sequence.is_background]
        take_out(lane.waiting, sequence)
        if not lane.waiting:
            del queued[lane]
            self._last[sequence.is_background] = lane

    def admitted(self, sequence: Sequence) -> None:
        """Charges for the prompt of a sequence that begins to run, but for what is there of it, unless it was charged
        before."""
        if not sequence.is_charged:
            sequence.is_charged = True
            self._charge(sequence, INPUT * max(0, sequence.prompt_length - sequence.computed))

    def answered(self, sequence: Sequence, confirmed: Iterable[Confirmed]) -> None:
        """Charges for the tokens of an answer."""
        self._charge(sequence, OUTPUT * sum(isinstance(each, Sampled | Candidates) for each in confirmed))

    def pass_tenant(self, sequence: Sequence) -> None:
        """Passes by all of a waiting sequence's tenant in this plan."""
        self._lane(sequence).is_passed = True

    def in_turn(self, is_background: bool) -> Iterable[Sequence]:
        """Returns all those of a class that wait, in the order in which they are to run."""
        return Turns(self._queued[is_background])

    def queues(self) -> list[Items[Sequence]]:
        """Returns those that wait and are not of the background, of each tenant by itself, in their order."""
        return [lane.waiting for lane in self._queued[False]]

    def rows_in_turn(self, running: Items[Sequence]) -> list[Sequence]:
        """Returns those of a class that run in the order in which they get rows."""
        return sorted(running, key=self.served)

    def last(self, running: Items[Sequence]) -> Sequence:
        """Returns the one of those that run, which are given in their order, that is preempted first."""
        if not self.is_on:
            return running[-1]
        is_background = running[-1].is_background
        return max((each for each in reversed(running) if each.is_background is is_background), key=self.served)

    def served(self, sequence: Sequence) -> float:
        """Returns how much service the tenant of a sequence got for its share."""
        return self._lane(sequence).served

    def _lane(self, sequence: Sequence) -> Lane:
        name = sequence.is_background, (sequence.tenant or NOBODY).name
        if (lane := self._lanes.get(name)) is None:
            lane = self._lanes[name] = Lane()
        return lane

    def _enter(self, sequence: Sequence) -> None:
        lane, queued = self._lane(sequence), self._queued[sequence.is_background]
        if not lane.waiting:
            least = min((each.served for each in queued), default=None)
            if least is None:
                last = self._last.get(sequence.is_background)
                least = 0.0 if last is None else last.served
            lane.served = max(lane.served, least)
            queued[lane] = None
        put_in(lane.waiting, sequence)

    def _charge(self, sequence: Sequence, service: int) -> None:
        if self._counts:
            self._lane(sequence).served += service / ((sequence.tenant or NOBODY).share or 1)
