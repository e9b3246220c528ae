"""Seeded traffic of texts that vectors are made of: whole ones, and ones computed in chunks, in little memory."""

import random
from collections import deque

import pytest

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLED, Task
from penstock.contract.row_result import OtherResult, RowResult
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Pooled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.step_budget import StepBudget
from tests.router.scheduling.test_pooled import pooled

STEP, SLOTS, BLOCKS = 48, 6, 12


class Traffic:
    """Texts that come, leave and are answered, and a group that dies now and then, also of some of the texts."""

    def __init__(self, seed: int, is_whole: bool) -> None:
        self.random, self.is_whole = random.Random(seed), is_whole
        self.scheduler = Scheduler(
            block_size=4, num_blocks=0 if is_whole else BLOCKS, max_slots=SLOTS, max_step_tokens=STEP,
            shares_prefixes=not is_whole, is_whole=is_whole, budget=StepBudget(STEP // 2, 1, STEP))
        self.live: dict[int, Sequence] = {}
        self.deadly: set[int] = set()
        self.answered: set[int] = set()
        self.values: dict[int, dict[int, int]] = {}
        self.in_flight: deque[Plan] = deque()
        self.slots: dict[int, int] = {}
        self.next_id = 0

    def arrive(self) -> None:
        task = self.random.choice([Task.EMBED, Task.EMBED, Task.EMBED_ALL, Task.CLASSIFY])
        sequence = pooled(self.next_id, self.random.randint(1, STEP), task,
                          self.random.choice([0, 0, 0, 5, BACKGROUND]))
        if self.random.random() < 0.02:
            self.deadly.add(sequence.id)
        self.live[sequence.id] = sequence
        self.scheduler.add(sequence)
        self.next_id += 1

    def plan(self) -> None:
        plan = self.scheduler.plan()
        if plan is None:
            assert self.in_flight or not self.live, "texts wait for ever"
            return
        self.in_flight.append(plan)
        assert len({row.slot for row in plan.rows}) == len(plan.rows)
        assert plan.num_tokens <= STEP or len(plan.rows) == 1
        for slot in plan.cleared_slots:
            assert self.slots.pop(slot, None) is not None, "a slot is cleared that nobody told of"
        for row in plan.rows:
            if row.initial_state is not None:
                assert row.slot not in self.slots, "a slot is taken before it was cleared"
                self.slots[row.slot] = row.token_ids[0] // 100 if row.start == 0 else -1
            assert row.slot in self.slots
            if self.is_whole:
                assert (row.start, row.new_blocks, row.output) == (0, (), Output.POOL)

    def commit(self) -> None:
        plan = self.in_flight.popleft()
        rows = [row for row in plan.rows if row.output is Output.POOL]
        value = [OtherResult(POOLED, bytes([row.start, row.end])) for row in rows]
        for each in self.scheduler.commit(StepResult(plan.step_id, tuple(
                RowResult(row.slot, (), (), others=(found,)) for row, found in zip(rows, value, strict=True)))):
            assert isinstance(each, Pooled)
            if (sequence := self.live.get(each.sequence_id)) is None:
                continue
            assert each.value == bytes([each.start, each.start + each.num_tokens])
            self.values.setdefault(sequence.id, {})[each.start] = each.num_tokens
            if each.finish_reason is not None:
                assert each.start + each.num_tokens == sequence.prompt_length
                self.check_whole(sequence)
                assert sequence.id not in self.answered, "it is answered twice"
                self.answered.add(sequence.id)
                del self.live[sequence.id]

    def check_whole(self, sequence: Sequence) -> None:
        """The vectors of all tokens have come, those of a replay in the places of the first ones."""
        if sequence.pooled is Task.EMBED_ALL:
            known = {place for start, number in self.values[sequence.id].items()
                     for place in range(start, start + number)}
            assert known == set(range(sequence.prompt_length))

    def step(self) -> None:
        """A result comes, or the group dies: by chance, or of a text in the step."""
        named = {self.slots[row.slot] for row in self.in_flight[0].rows}
        if self.random.random() < 0.01 or named & self.deadly:
            forgotten = self.scheduler.forget_all()
            self.in_flight.clear()
            self.slots.clear()
            for id in forgotten.given_up:
                assert id in self.deadly, "an innocent text is given up"
                del self.live[id]
            self.deadly -= set(forgotten.given_up)
            return
        self.commit()


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "chunks"])
@pytest.mark.parametrize("seed", range(4))
def test_every_text_is_answered_once_and_whole(seed: int, is_whole: bool) -> None:
    traffic = Traffic(seed, is_whole)
    depth = 1 + seed % 3
    left = 0
    for number in range(10_000):
        if number < 200 and traffic.random.random() < 0.6:
            traffic.arrive()
        if traffic.live and number < 200 and traffic.random.random() < 0.02:
            id = traffic.random.choice([*traffic.live])
            traffic.scheduler.finish(id, FinishReason.CANCELLED)
            del traffic.live[id]
            left += 1
        while len(traffic.in_flight) < depth and traffic.live:
            before = len(traffic.in_flight)
            traffic.plan()
            if len(traffic.in_flight) == before:
                break
        if traffic.in_flight:
            traffic.step()
        elif number >= 200 and not traffic.live:
            break
    assert not traffic.live
    assert len(traffic.answered) > 70
    assert (traffic.scheduler.num_running, traffic.scheduler.num_waiting, traffic.scheduler.memory.num_held) == (0,) * 3
