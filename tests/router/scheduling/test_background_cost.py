"""How much later others get their first tokens for the background, on machines of which only the clock is made up."""

import random
from collections import deque
from dataclasses import dataclass

import pytest

from penstock.contract.plan import Plan
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.priorities import BACKGROUND, MAX_PRIORITY
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.step_budget import StepBudget
from tests.router.scheduling.small_schedulers import answer


@dataclass(frozen=True)
class Machine:
    """A step takes `base` seconds and `per_token` for each token. Requests arrive at random, so many a second."""

    base: float
    per_token: float
    rate: float
    slots: int = 32
    budget: int = 256
    shares_prompts: bool = False
    """Whether requests begin as a line does that has begun with its prompt."""


MACHINES = {
    "processor": Machine(base=0.03, per_token=0.0015, rate=1.2),
    "gpu": Machine(base=0.008, per_token=0.00002, rate=12.0, budget=2048),
    "shared prompts": Machine(base=0.03, per_token=0.0015, rate=1.2, shares_prompts=True),
    "few slots": Machine(base=0.03, per_token=0.0015, rate=1.2, slots=6),
    "a busy processor": Machine(base=0.03, per_token=0.0015, rate=2.0),
    "a busy gpu": Machine(base=0.008, per_token=0.00002, rate=40.0, budget=2048),
}
QUICK = ("processor", "shared prompts")
NUM_REQUESTS, NUM_LINES = 200, 64
TARGET = 1.3
"""How many times as long the time to the first token may be, of the 99th percentile."""


class Clock:
    """Runs a scheduler two steps ahead; from the first request on there are `num_lines` of a priority beside others."""

    def __init__(self, machine: Machine, num_lines: int, priority: int = BACKGROUND) -> None:
        self.machine, self.random = machine, random.Random(1)
        self.num_lines, self.priority = num_lines, priority
        self.scheduler = Scheduler(
            block_size=16, num_blocks=1200, max_slots=machine.slots, max_step_tokens=machine.budget,
            budget=StepBudget(machine.budget, 16, machine.budget))
        self.now, self.due, self.next_id = 0.0, 0.0, 0
        self.in_flight: deque[tuple[Plan, float]] = deque()
        self.came: dict[int, float] = {}
        self.firsts: list[float] = []
        self.lines: set[int] = set()
        self.num_line_tokens = 0

    def arrive(self) -> None:
        self.add(self.random.randint(20, 200), self.random.randint(8, 40), 0)
        self.came[self.next_id] = self.now
        while len(self.lines) < self.num_lines:
            self.add_line()

    def add_line(self) -> None:
        self.add(100, 64, self.priority)
        self.lines.add(self.next_id)

    def add(self, length: int, new: int, priority: int) -> None:
        self.next_id += 1
        first = self.next_id * 1000
        if self.machine.shares_prompts and priority == 0:
            first = next((each.tokens[0] for each in self.scheduler._batch.running if each.is_prefilling
                          and each.is_background), first)
        self.scheduler.add(Sequence(
            id=self.next_id, tokens=[first + i for i in range(length)], prompt_length=length,
            max_length=length + new, sampling=Sampling(), priority=priority))

    def run(self) -> None:
        while len(self.firsts) < NUM_REQUESTS:
            while len(self.in_flight) < 2 and (plan := self.scheduler.plan()) is not None:
                begin = self.in_flight[-1][1] if self.in_flight else self.now
                self.in_flight.append((plan, begin + self.seconds(plan)))
            if self.in_flight and self.in_flight[0][1] <= self.due:
                self.commit()
            else:
                self.now, self.due = self.due, self.due + self.random.expovariate(self.machine.rate)
                self.arrive()

    def seconds(self, plan: Plan) -> float:
        return self.machine.base + self.machine.per_token * plan.num_tokens

    def commit(self) -> None:
        plan, self.now = self.in_flight.popleft()
        result = answer(plan, *[7] * sum(row.is_sampled for row in plan.rows))
        for each in self.scheduler.commit(result):
            assert isinstance(each, Sampled)
            if each.sequence_id in self.came:
                self.firsts.append(self.now - self.came.pop(each.sequence_id))
            elif each.sequence_id in self.lines:
                self.num_line_tokens += 1
                if each.finish_reason is not None:
                    self.lines.remove(each.sequence_id)
                    self.add_line()
        self.scheduler.observe(plan, StepResult(plan.step_id, result.rows, int(1e9 * self.seconds(plan))))


def slowest(machine: Machine, num_lines: int, priority: int = BACKGROUND) -> tuple[float, int]:
    """The 99th percentile of the time to the first token, and how many tokens lines got meanwhile."""
    clock = Clock(machine, num_lines, priority)
    clock.run()
    return sorted(clock.firsts)[NUM_REQUESTS * 99 // 100], clock.num_line_tokens


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
                                  for name in MACHINES])
def test_first_tokens_come_little_later_beside_the_background(name: str) -> None:
    alone, _ = slowest(MACHINES[name], 0)
    beside, num_line_tokens = slowest(MACHINES[name], NUM_LINES)
    assert beside <= TARGET * alone
    assert num_line_tokens > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK[:1])
def test_they_would_come_much_later_beside_requests_that_only_come_later(name: str) -> None:
    assert slowest(MACHINES[name], NUM_LINES, MAX_PRIORITY)[0] > 2 * slowest(MACHINES[name], 0)[0]
