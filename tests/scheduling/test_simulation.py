"""Seeded traffic through the scheduler; the invariants are asserted after every verb."""

import random
from collections import deque

import pytest

from router.scheduling.plan import FinishReason, Output, Plan, RowResult, Sampling, StepResult
from router.scheduling.scheduler import Scheduler
from router.scheduling.sequence import Sequence, Status

EOS = 1
BLOCK, NUM_BLOCKS, SLOTS, BUDGET = 4, 24, 6, 16


class Mirror:
    """What a shard would know: for each slot its blocks and how many positions it has written."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[int]] = {}
        self.written: dict[int, int] = {}

    def apply(self, plan: Plan) -> None:
        for slot in plan.cleared_slots:
            del self.blocks[slot], self.written[slot]
        for row in plan.rows:
            if row.first is not None:
                assert row.slot not in self.blocks, "a slot is given out twice"
                self.blocks[row.slot], self.written[row.slot] = [], row.start
            self.blocks[row.slot] += row.new_blocks
            assert row.start == self.written[row.slot], "rows of a sequence are consecutive"
            self.written[row.slot] += row.count
            assert self.written[row.slot] <= len(self.blocks[row.slot]) * BLOCK, "a position has no block"


class Simulation:
    """A scheduler, its steps in flight, and a client that adds, cancels and reads."""

    def __init__(self, seed: int, depth: int) -> None:
        self.random = random.Random(seed)
        self.depth = depth
        self.scheduler = Scheduler(block_size=BLOCK, num_blocks=NUM_BLOCKS, max_slots=SLOTS, max_step_tokens=BUDGET,
                                   eos_token_ids={EOS})
        self.mirror = Mirror()
        self.in_flight: deque[Plan] = deque()
        self.sequences: dict[int, Sequence] = {}
        self.waited: dict[int, int] = {}
        self.num_preempted = 0
        self.num_finished = 0
        self.next_id = 0

    def add(self) -> None:
        prompt = self.random.randint(1, 40)
        sequence = Sequence(
            id=self.next_id, tokens=[self.random.randint(2, 9) for _ in range(prompt)], prompt_length=prompt,
            max_length=prompt + self.random.randint(1, NUM_BLOCKS * BLOCK - prompt), sampling=Sampling())
        self.next_id += 1
        self.sequences[sequence.id] = sequence
        self.waited[sequence.id] = 0
        self.scheduler.add(sequence)

    def cancel(self) -> None:
        sequence_id = self.random.choice(list(self.sequences))
        self.scheduler.finish(sequence_id, FinishReason.CANCELLED)
        del self.sequences[sequence_id]

    def plan(self) -> bool:
        plan = self.scheduler.plan()
        if plan is None:
            return False
        assert 0 < plan.num_tokens <= BUDGET
        self.mirror.apply(plan)
        self.in_flight.append(plan)
        self.num_preempted += len(plan.preempted)
        return True

    def commit(self) -> None:
        plan = self.in_flight.popleft()
        rows = tuple(RowResult(row.slot, (1 if self.random.random() < 0.03 else self.random.randint(2, 9),), (-1.0,))
                     for row in plan.rows if row.output is Output.SAMPLE)
        for sampled in self.scheduler.commit(StepResult(plan.step_id, rows)):
            self.waited[sampled.sequence_id] = 0
            if sampled.finish_reason is not None:
                del self.sequences[sampled.sequence_id]
                self.num_finished += 1

    def check(self) -> None:
        """Blocks add up, slots too; what a step in flight names is held; the oldest makes progress."""
        pool = self.scheduler.memory.pool
        assert pool.num_free + pool.num_used == NUM_BLOCKS
        live = [s for s in self.sequences.values() if s.status in (Status.RUNNING, Status.DRAINING)]
        assert len({s.slot for s in live}) == len(live) <= SLOTS
        for plan in self.in_flight:
            assert all(pool.count(block) for row in plan.rows for block in row.new_blocks)
        if not self.in_flight:
            assert self.scheduler.memory.num_held == len({block for s in live for block in s.blocks})
        if self.sequences:
            oldest = min(self.sequences)
            self.waited[oldest] += 1
            assert self.waited[oldest] < 1000, f"sequence {oldest} makes no progress"

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if len(self.sequences) < 20 and self.random.random() < 0.3:
                self.add()
            if self.sequences and self.random.random() < 0.03:
                self.cancel()
            while len(self.in_flight) < self.depth and self.plan():
                pass
            self.check()
            if self.in_flight:
                self.commit()
            self.check()
        while self.sequences or self.in_flight:
            while len(self.in_flight) < self.depth and self.plan():
                pass
            self.commit()
            self.check()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_traffic_keeps_the_invariants(seed: int, depth: int) -> None:
    simulation = Simulation(seed, depth)
    simulation.run(1500)
    assert simulation.num_finished > 50
    assert simulation.num_preempted > 20
    assert simulation.scheduler.plan() is None
    assert (simulation.scheduler.memory.num_held, simulation.scheduler.num_running) == (0, 0)
