"""When answers would be whole, if the scheduler went on as it does now: its steps are counted, and each takes as long
as others of as many tokens took lately."""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil
from typing import NamedTuple

Cost = Callable[[float], float]
"""Returns the seconds of a step by its tokens."""


class Estimate(NamedTuple):
    """The seconds until an answer is whole: of waiting, of its prompt, and of its tokens."""

    waiting: float
    prompt: float
    tokens: float

    @property
    def total(self) -> float:
        return sum(self)

    def times(self, factor: float, pause: float = 0.0) -> "Estimate":
        """Returns the same if all takes longer, and a pause comes first."""
        return Estimate(factor * self.waiting + pause, factor * self.prompt, factor * self.tokens)


@dataclass(slots=True, eq=False)
class Work:
    """The work that is left of a sequence: tokens of a prompt to compute, tokens of an answer to get, and the blocks
    that it has at its end."""

    prompt: int
    answer: int
    blocks: int
    started_at: float = field(default=0.0, init=False)
    first_at: float = field(default=0.0, init=False)
    """When its first token has come."""
    ended_at: float | None = field(default=None, init=False)

    @property
    def estimate(self) -> Estimate:
        """The estimate of one that has been forecast."""
        assert self.ended_at is not None
        return Estimate(self.started_at, self.first_at - self.started_at, self.ended_at - self.first_at)


@dataclass(frozen=True, slots=True)
class Room:
    """How many sequences run at once, how many blocks there are for them, and how many tokens a step has. A sequence
    gets a token in each `rounds`-th step. Steps without a prompt have `beside` tokens of others that come later."""

    slots: int
    blocks: int
    step_tokens: int
    rounds: int = 1
    beside: int = 0


class Forecast:
    """Goes through the steps that sequences take, many equal ones at a time: those that are `running` first, in their
    order, and then those that wait, in theirs. One begins once it finds a slot, and blocks for all of its tokens; the
    scheduler lets it begin with fewer. All run to their most tokens."""

    def __init__(self, cost: Cost, room: Room, running: Items[Work], waiting: Items[Work]) -> None:
        self._cost, self._room = cost, room
        self._waiting = deque(waiting)
        self._prompts: deque[Work] = deque()
        self._decoding: list[tuple[int, int, Work]] = []
        """Those that get tokens, as a heap, by the round of their last one."""
        self._num_rounds = 0
        self._now = 0.0
        self._free_slots, self._free_blocks = room.slots - len(running), room.blocks - sum(w.blocks for w in running)
        self._known: dict[int, float] = {}
        for number, work in enumerate(running):
            if work.prompt:
                self._prompts.append(work)
            else:
                self._decoding.append((max(1, work.answer), number, work))
        self._number = len(running)
        heapify(self._decoding)

    def run(self, wanted: Items[Work]) -> None:
        """Goes on until the wanted ones have ended, or nothing goes on any more."""
        for work in wanted:
            while work.ended_at is None and self._advance():
                pass

    def _advance(self) -> bool:
        """Goes on to the next moment at which something changes. Returns whether anything was done."""
        while self._waiting and self._free_slots > 0 and (
                self._waiting[0].blocks <= self._free_blocks or not (self._prompts or self._decoding)):
            self._begin(self._waiting.popleft())
        if self._prompts:
            self._compute_prompts()
        elif self._decoding:
            num_tokens = len(self._decoding) + self._room.rounds * self._room.beside
            self._pass(self._decoding[0][0] - self._num_rounds, num_tokens)
        else:
            return False
        while self._decoding and self._decoding[0][0] <= self._num_rounds:
            self._end(heappop(self._decoding)[2])
        return True

    def _begin(self, work: Work) -> None:
        work.started_at = self._now
        self._free_slots -= 1
        self._free_blocks -= work.blocks
        self._prompts.append(work)

    def _compute_prompts(self) -> None:
        """Computes as many whole rounds as the first prompt fills, or one in which it ends, and perhaps others do."""
        num_decoding, first = len(self._decoding), self._prompts[0]
        chunk = max(1, self._room.rounds * self._room.step_tokens - num_decoding)
        if (rounds := first.prompt // chunk) > 0:
            if self._decoding:
                rounds = min(rounds, self._decoding[0][0] - self._num_rounds)
            first.prompt -= rounds * chunk
            self._pass(rounds, num_decoding + chunk)
            if not first.prompt:
                self._start_decoding(self._prompts.popleft())
            return
        left, ended = chunk, []
        while self._prompts and self._prompts[0].prompt <= left:
            left -= self._prompts[0].prompt
            ended.append(self._prompts.popleft())
        if self._prompts:
            self._prompts[0].prompt -= left
            left = 0
        self._pass(1, num_decoding + chunk - left)
        for work in ended:
            self._start_decoding(work)

    def _start_decoding(self, work: Work) -> None:
        """Takes in that a prompt's last token has yielded the answer's first."""
        work.prompt, work.first_at = 0, self._now
        if work.answer <= 1:
            self._end(work)
            return
        self._number += 1
        heappush(self._decoding, (self._num_rounds + work.answer - 1, self._number, work))

    def _end(self, work: Work) -> None:
        work.ended_at = self._now
        self._free_slots += 1
        self._free_blocks += work.blocks

    def _pass(self, rounds: int, num_tokens: int) -> None:
        """Lets the time of equal rounds pass, of so many tokens each."""
        seconds = self._known.get(num_tokens)
        if seconds is None:
            steps = self._room.rounds
            seconds = self._known[num_tokens] = steps * self._cost(ceil(num_tokens / steps))
        self._num_rounds += rounds
        self._now += rounds * seconds
