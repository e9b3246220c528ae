"""Lets requests come, wait and be answered under a policy of batching, by the scheduler that serves."""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Protocol

from penstock.bench.batching.waste import Waste
from penstock.contract.plan import Plan
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.batching import Batching, Continuous, Dynamic, Static
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence, Status

POLICIES = ("continuous", "static", "dynamic")


@dataclass(frozen=True)
class Request:
    """A request that comes `at` a time, whose answer ends after `answer` tokens, as by a stop string. It may have
    `limit` tokens: nobody knows before where it ends."""

    at: float
    prompt: tuple[int, ...]
    answer: int
    limit: int


class Machine(Protocol):
    """Runs steps, and has a clock that begins at 0."""

    def now(self) -> float: ...

    def idle(self) -> None:
        """Lets a moment pass, in which nothing runs."""

    def run(self, plan: Plan) -> StepResult: ...


@dataclass
class Answered:
    """When a request had its first token and its last, after it came."""

    first_after: float = 0.0
    ended_after: float = 0.0


@dataclass(frozen=True)
class Shape:
    """The room that sequences have: slots, blocks of the memory, and tokens of a step."""

    num_slots: int
    num_blocks: int
    block_size: int
    max_step_tokens: int


def make_policy(name: str, num_slots: int, delay: float, machine: Machine) -> Batching:
    """Returns the policy of a name in POLICIES. A dynamic batch waits for at most `delay` of the machine's
    time."""
    if name == "static":
        return Static(num_slots)
    return Dynamic(num_slots, delay, machine.now) if name == "dynamic" else Continuous()


@dataclass
class Drive:
    """Answers requests, which are in the order in which they come, under the policy of a name."""

    requests: Items[Request]
    policy: str
    shape: Shape
    delay: float
    machine: Machine
    answered: list[Answered] = field(default_factory=list)
    waste: Waste = field(default_factory=Waste)

    def steps(self) -> Iterator[dict[int, int]]:
        """Runs all, and yields for each step, or moment without one, which request is in which slot."""
        policy = make_policy(self.policy, self.shape.num_slots, self.delay, self.machine)
        scheduler = Scheduler(
            block_size=self.shape.block_size, num_blocks=self.shape.num_blocks, max_slots=self.shape.num_slots,
            max_step_tokens=self.shape.max_step_tokens, batching=policy)
        coming = deque(self._sequences())
        present: dict[int, Sequence] = {}
        self.answered = [Answered() for _ in self.requests]
        while coming or present:
            while coming and self.requests[coming[0].id].at <= self.machine.now():
                sequence = coming.popleft()
                present[sequence.id] = sequence
                scheduler.add(sequence)
            if not coming:
                policy.close()
            plan = scheduler.plan()
            if plan is None:
                self.machine.idle()
                yield {}
                continue
            running = [each for each in present.values() if each.status is Status.RUNNING]
            self.waste.observe(running, self.shape.block_size)
            slots = {each.slot: each.id for each in running if each.slot is not None}
            for sampled in scheduler.commit(self.machine.run(plan)):
                assert isinstance(sampled, Sampled), "nothing else was asked for"
                self._take(scheduler, present, sampled)
            yield slots

    def _sequences(self) -> Iterator[Sequence]:
        for number, request in enumerate(self.requests):
            length = len(request.prompt)
            yield Sequence(id=number, tokens=list(request.prompt), prompt_length=length,
                           max_length=length + request.limit, sampling=Sampling(), ignore_eos=True)

    def _take(self, scheduler: Scheduler, present: dict[int, Sequence], sampled: Sampled) -> None:
        """Takes in a token of an answer, which may be its last."""
        number = sampled.sequence_id
        sequence, request, answered = present[number], self.requests[number], self.answered[number]
        answered.ended_after = self.machine.now() - request.at
        num_tokens = len(sequence.tokens) - sequence.prompt_length
        if num_tokens == 1:
            answered.first_after = answered.ended_after
        if num_tokens == request.answer:
            scheduler.finish(number, FinishReason.STOP_SEQUENCE)
            del present[number]
