"""Traffic of tenants, and what each of them is served, counted from plans and results alone."""

import random
from collections import Counter, deque
from typing import Any

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.shares import INPUT, OUTPUT, Shares
from penstock.router.scheduling.tenant import KvQuota, Tenant
from tests.router.scheduling.simulation import Simulation
from tests.router.scheduling.small_schedulers import GREEDY

QUOTAS = KvQuota(40, is_percent=True), KvQuota(20, is_percent=False)
TENANTS = [None, Tenant("a", 1), Tenant("b", 3, QUOTAS[0]), Tenant("c", 1, QUOTAS[1])]


class Traffic:
    """A scheduler, with two steps in flight, and requests of tenants, whose tokens are all different."""

    def __init__(self, seed: int, shares: type[Shares], num_blocks: int, max_slots: int) -> None:
        self.random = random.Random(seed)
        self.scheduler = Scheduler(block_size=4, num_blocks=num_blocks, max_slots=max_slots, max_step_tokens=32)
        self.scheduler._waiting.shares.__class__ = shares
        self.sequences: dict[int, Sequence] = {}
        self.plans: deque[tuple[Plan, dict[int, Sequence]]] = deque()
        self.reached: Counter[int] = Counter()
        self.served: Counter[str] = Counter()
        """The service of each tenant."""
        self.num_preempted = 0
        self._next_id = 0

    def add(self, tenant: Tenant, length: int, max_new: int, **options: Any) -> Sequence:
        id = self._next_id
        self._next_id += 1
        sequence = self.sequences[id] = Sequence(
            id=id, tokens=[1000 * id + place for place in range(length)], prompt_length=length,
            max_length=length + max_new, sampling=GREEDY, tenant=tenant, **options)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> None:
        """Plans up to two steps ahead, and takes a result."""
        while len(self.plans) < 2 and (plan := self.scheduler.plan()) is not None:
            self.num_preempted += len(plan.preempted)
            self.plans.append((plan, {s.slot: s for s in self.sequences.values() if s.slot is not None}))
        assert self.plans, "nothing runs"
        plan, by_slot = self.plans.popleft()
        for row in plan.rows:
            sequence = by_slot[row.slot]
            if not row.is_decode:
                end = min(row.end, sequence.prompt_length)
                self.serve(sequence, INPUT * max(0, end - max(row.start, self.reached[sequence.id])))
                self.reached[sequence.id] = max(self.reached[sequence.id], end)
        answers = (RowResult(row.slot, (self.random.randrange(10**6, 10**9),), (-1.0,)) for row in plan.rows
                   if row.output is Output.SAMPLE)
        for each in self.scheduler.commit(StepResult(plan.step_id, tuple(answers))):
            assert isinstance(each, Sampled)
            self.serve(self.sequences[each.sequence_id], OUTPUT)
            if each.finish_reason is not None:
                del self.sequences[each.sequence_id]

    def serve(self, sequence: Sequence, service: int) -> None:
        assert sequence.tenant is not None
        self.served[sequence.tenant.name] += service

    def num_waiting(self, tenant: Tenant) -> int:
        return sum(each.tenant is tenant and each.status is Status.WAITING for each in self.sequences.values())


class Tenanted(Scheduler):
    """Gives each request to one of `TENANTS`; the first ones have none, as before shares are read from a file."""

    def add(self, sequence: Sequence) -> None:
        sequence.tenant = TENANTS[sequence.age * 7 % len(TENANTS)] if sequence.age > 8 else None
        super().add(sequence)


class TenantsSimulation(Simulation):
    """Sees that the lanes of tenants have who waits, and that the one whose turn it is gets a row."""

    def is_due(self, sequence: Sequence) -> bool:
        shares, running = self.scheduler._waiting.shares, self.scheduler._batch.running
        return super().is_due(sequence) and all(
            shares.served(sequence) < shares.served(each) for each in running if each is not sequence)

    def check(self) -> None:
        super().check()
        shares, waiting = self.scheduler._waiting.shares, self.scheduler._waiting
        if shares.is_on:
            for is_background, queued in shares._queued.items():
                lanes = [each for lane in queued for each in lane.waiting]
                assert sorted(each.id for each in lanes) == sorted(
                    each.id for each in waiting if each.is_background is is_background), "lanes lack who waits"
                assert all(lane.waiting for lane in queued)
            self.counts["looks at lanes"] += 1
        held = Counter({name: number for name, number in self.scheduler._batch.kv_use._held.items() if number})
        assert held == self.held(), "quotas count another memory"

    def held(self) -> Counter[str]:
        """The tokens that those of tenants with quotas which have a slot may come to."""
        held: Counter[str] = Counter()
        for client in self.present.values():
            sequence = client.sequence
            if sequence.tenant is not None and sequence.tenant.kv_quota is not None and not sequence.is_background:
                held[sequence.tenant.name] += sequence.max_length
        return held
