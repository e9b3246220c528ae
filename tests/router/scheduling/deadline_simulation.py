"""A group on a virtual clock, whose steps take about as long as a cost says: requests come, some with deadlines."""

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from random import Random

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.promise import Promise, Verdict
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.step_budget import StepBudget

EOS = 9
DEPTH = 2


@dataclass(frozen=True)
class Asked:
    """A request: when it comes, its lengths, and how long it may take; `most` tokens are allowed, fewer may come."""

    at: float
    prompt: int
    most: int
    answer: int
    seconds: float | None = None
    priority: int = 0


@dataclass
class Machine:
    """The truth about steps: a time for each, one for each token, noise, and now and then a pause."""

    step: float = 0.01
    token: float = 0.0005
    noise: float = 0.1
    pause: float = 0.1
    pauses: float = 0.001
    slower: float = 1.0
    """How many times slower it is from the middle of the requests on."""

    def seconds(self, num_tokens: int, random: Random) -> float:
        pause = self.pause * random.random() if random.random() < self.pauses else 0.0
        return (self.step + self.token * num_tokens) * random.lognormvariate(0.0, self.noise) + pause


@dataclass
class Outcome:
    """What became of the requests, by their place."""

    ended: dict[int, float] = field(default_factory=dict)
    """When they had all of their tokens."""
    refused: dict[int, Verdict] = field(default_factory=dict)
    promised: set[int] = field(default_factory=set)
    missed: set[int] = field(default_factory=set)
    preempted: int = 0


class DeadlineSimulation:
    """Answers requests. Without `judges` deadlines are known to nobody, and it is only counted which were missed."""

    def __init__(
        self, asked: Items[Asked], seed: int = 0, machine: Machine | None = None, *, max_slots: int = 16,
        num_blocks: int = 1000, judges: bool = True,
    ) -> None:
        self._asked, self._random = asked, Random(seed)
        self._machine = machine or Machine()
        self._now, self._judges = 0.0, judges
        self.scheduler = Scheduler(
            block_size=16, num_blocks=num_blocks, max_slots=max_slots, max_step_tokens=2048, eos_token_ids={EOS},
            budget=StepBudget(400, 64, 2048), clock=lambda: self._now)
        self._coming = deque(enumerate(asked))
        self._flights: deque[tuple[Plan, float, float]] = deque()
        self._lengths: dict[int, int] = {}
        self.outcome = Outcome()

    def run(self) -> Outcome:
        free_at = 0.0
        while True:
            while self._coming and self._coming[0][1].at <= self._now:
                self._come(*self._coming.popleft())
            while len(self._flights) < DEPTH and (plan := self.scheduler.plan()):
                is_late = len(self._coming) < len(self._asked) / 2
                took = self._machine.seconds(plan.num_tokens, self._random) * (self._machine.slower if is_late else 1)
                free_at = max(self._now, free_at) + took
                self._flights.append((plan, free_at, took))
                self.outcome.preempted += len(plan.preempted)
            next_at = self._coming[0][1].at if self._coming else float("inf")
            if self._flights and self._flights[0][1] <= next_at:
                plan, self._now, took = self._flights.popleft()
                self._commit(plan, took)
            elif self._coming:
                self._now = next_at
            else:
                break
        assert not self._lengths, "some were never answered"
        return self.outcome

    def _come(self, number: int, asked: Asked) -> None:
        sequence = Sequence(
            id=number, tokens=[self._random.randrange(10, 99) for _ in range(asked.prompt)], prompt_length=asked.prompt,
            max_length=asked.prompt + asked.most, sampling=Sampling(), priority=asked.priority,
            promise=Promise(asked.at + asked.seconds) if asked.seconds is not None and self._judges else None)
        if sequence.promise is not None:
            verdict = self.scheduler.promises.judge(sequence)
            if not verdict.can_be_met:
                self.outcome.refused[number] = verdict
                return
            self.outcome.promised.add(number)
        self._lengths[number] = 0
        self.scheduler.add(sequence)

    def _commit(self, plan: Plan, took: float) -> None:
        slots = {s.slot: s.id for s in self.scheduler._sequences.values() if s.slot is not None}
        rows = []
        for row in plan.rows:
            if row.output is Output.SAMPLE:
                number = slots.get(row.slot)
                is_last = number is not None and self._lengths[number] + 1 >= self._asked[number].answer
                rows.append(RowResult(row.slot, (EOS if is_last else 1,), (-1.0,)))
        result = StepResult(plan.step_id, tuple(rows), forward_ns=round(1e9 * took))
        for each in self.scheduler.commit(result):
            assert isinstance(each, Sampled)
            self._lengths[each.sequence_id] += 1
            if each.finish_reason is not None:
                self._end(each.sequence_id)
        self.scheduler.observe(plan, result)

    def _end(self, number: int) -> None:
        del self._lengths[number]
        asked = self._asked[number]
        self.outcome.ended[number] = self._now
        if asked.seconds is not None and self._now > asked.at + asked.seconds:
            self.outcome.missed.add(number)
