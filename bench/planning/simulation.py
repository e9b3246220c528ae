"""Lets one group answer traffic on paper: the scheduler that serves plans the steps, and a cost says how long they
take."""

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from penstock.bench.batching.drive import Answered, Request
from penstock.bench.load.measurement import percentile
from penstock.bench.planning.costs import StepCost, prompt_work, work_of
from penstock.bench.planning.traffic import Traffic
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.step_budget import FLOOR, GRAIN, TARGET_SECONDS, StepBudget

DEPTH = 2
"""Steps that are planned before the results of the first are back: the server's --pipeline-depth."""
MAX_STEP_TOKENS = 4096
BETWEEN = 0.5
"""The time from one of many requests at once to the next, as a share of the time that a request takes before it runs:
about half of it is the client's, half the router's, and each has one process."""


@dataclass(frozen=True)
class Room:
    """The sequences that run at once in a group, and the tokens that its memory holds."""

    slots: int
    kv_tokens: int
    block_size: int


@dataclass
class Outcome:
    """The times of the requests' tokens, and how long the group computed of the time that all took."""

    requests: Items[Request]
    answered: list[Answered] = field(default_factory=list)
    seconds: float = 0.0
    busy: float = 0.0

    def first_token(self, percent: float) -> float:
        """Returns the time to the first token within which `percent` of the requests got it, in seconds."""
        return percentile([each.first_after for each in self.answered], percent)

    def per_token(self, percent: float) -> float:
        """Returns the same of the mean time between an answer's tokens; NaN for answers of one token."""
        return percentile([(each.ended_after - each.first_after) / (request.answer - 1)
                           for each, request in zip(self.answered, self.requests, strict=True) if request.answer > 1],
                          percent)

    @property
    def tokens_per_second(self) -> float:
        return sum(request.answer for request in self.requests) / self.seconds

    @property
    def keeps_up(self) -> bool:
        """Tells whether the last third of the requests were answered about as soon as those of the middle: otherwise
        more of them wait the longer the traffic lasts."""
        third = max(1, len(self.answered) // 3)
        middle, last = (sum(each.ended_after for each in part)
                        for part in (self.answered[-2 * third:-third], self.answered[-third:]))
        return last <= 1.3 * middle


class Simulation:
    """One group, in whose engine steps are planned ahead as in the server's."""

    def __init__(self, traffic: Traffic, room: Room, cost: StepCost) -> None:
        self._traffic, self._cost = traffic, cost
        self._scheduler = Scheduler(
            block_size=room.block_size, num_blocks=room.kv_tokens // room.block_size, max_slots=room.slots,
            max_step_tokens=MAX_STEP_TOKENS, budget=StepBudget(step_tokens(cost), FLOOR, MAX_STEP_TOKENS))
        requests = traffic.requests()
        self._outcome = Outcome(requests, [Answered() for _ in requests])
        self._waiting = deque(range(len(requests)))
        self._coming: deque[tuple[float, int]] = deque()
        self._came: dict[int, float] = {}
        self._num_tokens: dict[int, int] = {}

    def run(self) -> Outcome:
        """Answers all requests. Raises ValueError for one that the memory never holds."""
        now = free_at = 0.0
        in_flight: deque[tuple[Plan, float, float]] = deque()
        if self._traffic.clients:
            for _ in range(min(self._traffic.clients, len(self._waiting))):
                self._send(0.0)
        else:
            while self._waiting:
                self._send(self._outcome.requests[self._waiting[0]].at)
        while True:
            self._admit(now)
            while len(in_flight) < DEPTH and (plan := self._scheduler.plan()):
                seconds = self._cost.seconds(work_of(plan.rows))
                free_at = max(now, free_at) + seconds
                in_flight.append((plan, free_at, seconds))
                self._outcome.busy += seconds
            if in_flight:
                plan, now, seconds = in_flight.popleft()
                self._commit(plan, now, seconds)
            elif self._coming:
                now = self._coming[0][0]
            else:
                break
        if self._came:
            raise ValueError(f"{len(self._came)} requests do not fit into the memory")
        self._outcome.seconds = now
        return self._outcome

    def _send(self, at: float) -> None:
        """Lets the next request come. It may run a moment later, and those that come together one after the other: the
        first is in a step before the last is read."""
        number, moment = self._waiting.popleft(), self._cost.request_seconds
        self._came[number] = at
        before = self._coming[-1][0] if self._coming else 0.0
        self._coming.append((max(at + moment, before + moment * BETWEEN), number))

    def _admit(self, now: float) -> None:
        while self._coming and self._coming[0][0] <= now:
            _, number = self._coming.popleft()
            request = self._outcome.requests[number]
            length = len(request.prompt)
            self._num_tokens[number] = 0
            self._scheduler.add(Sequence(
                id=number, tokens=list(request.prompt), prompt_length=length, max_length=length + request.answer,
                sampling=Sampling(), ignore_eos=True))

    def _commit(self, plan: Plan, now: float, seconds: float) -> None:
        rows = tuple(RowResult(row.slot, (1,), (-1.0,)) for row in plan.rows if row.output is Output.SAMPLE)
        result = StepResult(plan.step_id, rows, forward_ns=round(1e9 * seconds))
        for sampled in self._scheduler.commit(result):
            assert isinstance(sampled, Sampled), "nothing else was asked for"
            number = sampled.sequence_id
            answered = self._outcome.answered[number]
            answered.ended_after = now - self._came[number]
            if self._num_tokens[number] == 0:
                answered.first_after = answered.ended_after
            self._num_tokens[number] += 1
            if sampled.finish_reason is not None:
                del self._came[number]
                if self._traffic.clients and self._waiting:
                    self._send(now)
        self._scheduler.observe(plan, result)


def step_tokens(cost: StepCost) -> int:
    """Returns how many prompt tokens a step computes in TARGET_SECONDS, as the shards measure it when they start."""
    tokens = GRAIN
    while tokens < MAX_STEP_TOKENS and cost.seconds(prompt_work(2 * tokens)) <= TARGET_SECONDS:
        tokens *= 2
    return max(GRAIN, min(MAX_STEP_TOKENS, int(
        tokens * TARGET_SECONDS / cost.seconds(prompt_work(tokens))) // GRAIN * GRAIN))
