"""Deadlines: which are promised, and what is done so that they are kept."""

from random import Random

import pytest

from penstock.router.scheduling.admission import MAX_PASSED
from penstock.router.scheduling.deadlines import LEAST_BESIDE
from penstock.router.scheduling.promise import Promise, Verdict
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Status
from tests.router.scheduling.deadline_simulation import Asked, DeadlineSimulation, Machine
from tests.router.scheduling.small_schedulers import answer, make_sequence, planned

STEP = 0.1
"""The seconds of each step of a scheduler here."""
MACHINES = {"even": Machine(), "uneven": Machine(noise=0.3, pauses=0.01), "slower amid it": Machine(slower=2.0)}


def mixed(seed: int, rate: float, number: int = 300) -> list[Asked]:
    """Requests of all lengths, half of them with deadlines of 1 to 10 times what they take alone."""
    random, at, asked = Random(seed), 0.0, []
    for _ in range(number):
        at += random.expovariate(rate)
        most, prompt = random.randint(4, 120), random.choice([20, 50, 100, 400, 1000])
        seconds = None
        if random.random() < 0.5:
            alone = 0.0105 * most + 0.0005 * prompt + 0.01 * (prompt // 400 + 1)
            seconds = alone * random.uniform(1, 10)
        answered = most if random.random() < 0.5 else random.randint(1, most)
        asked.append(Asked(at, prompt, most, answered, seconds, random.choice([0, 0, 0, 0, -4, 3])))
    return asked


def test_few_promises_are_missed_and_many_are_made() -> None:
    """Where there is little to do most are promised; where there is too much, more than would have been kept by luck.
    """
    num_promised = num_missed = 0
    for machine in MACHINES.values():
        for rate, least in ((1, 0.6), (3, 0.4), (7, 0.05)):
            asked = mixed(rate, rate)
            outcome = DeadlineSimulation(asked, rate, machine).run()
            wanted = sum(each.seconds is not None for each in asked)
            assert len(outcome.promised) >= least * wanted
            assert len(outcome.refused) + len(outcome.ended) == len(asked), "a promise costs nobody the answer"
            num_promised += len(outcome.promised)
            num_missed += len(outcome.promised & outcome.missed)
    assert num_missed <= 0.01 * num_promised, f"{num_missed} of {num_promised}"


def test_promises_are_kept_that_would_be_broken_without_them() -> None:
    asked = mixed(5, 6)
    told = DeadlineSimulation(asked, 5).run()
    untold = DeadlineSimulation(asked, 5, judges=False).run()
    assert len(told.promised & untold.missed) > 10 * len(told.promised & told.missed) + 10


def test_promises_are_kept_where_memory_is_short() -> None:
    asked = mixed(8, 3)
    outcome = DeadlineSimulation(asked, 8, num_blocks=120).run()
    assert len(outcome.promised) >= 30
    assert len(outcome.promised & outcome.missed) <= 1


class Timed:
    """A scheduler whose steps take STEP each, whatever is in them."""

    def __init__(self, max_slots: int = 2, num_blocks: int = 100, max_step_tokens: int = 16) -> None:
        self.now = 0.0
        self.scheduler = Scheduler(block_size=4, num_blocks=num_blocks, max_slots=max_slots,
                                   max_step_tokens=max_step_tokens, clock=lambda: self.now)

    def step(self) -> list[int]:
        """Runs a step; returns the sequences that had rows."""
        plan = planned(self.scheduler)
        named = [s.id for slot in [row.slot for row in plan.rows] for s in self.scheduler._batch.running
                 if s.slot == slot]
        self.now += STEP
        self.scheduler.commit(answer(plan, *[7 for row in plan.rows if row.is_sampled]))
        self.scheduler.observe(plan, answer(plan, *[7 for row in plan.rows if row.is_sampled]))
        return named

    def learn(self) -> None:
        """Runs one sequence, so that the time of steps is known."""
        self.scheduler.add(make_sequence(900, length=30, max_new=70))
        while self.scheduler.num_running or self.scheduler.num_waiting:
            self.step()

    def ask(self, id: int, seconds: float, length: int = 4, max_new: int = 8, priority: int = 0) -> Verdict:
        """Adds a sequence with a deadline, if that can be met."""
        sequence = make_sequence(id, length, max_new, priority=priority)
        sequence.promise = Promise(self.now + seconds)
        verdict = self.scheduler.promises.judge(sequence)
        if verdict.can_be_met:
            self.scheduler.add(sequence)
        return verdict


def test_an_estimate_tells_waiting_prompt_and_tokens() -> None:
    timed = Timed(max_slots=1)
    timed.learn()
    alone = timed.ask(1, 0.5, max_new=8)
    assert not alone.can_be_met
    assert alone.num_before == 0
    assert alone.estimate.waiting == pytest.approx(0, abs=0.01)
    assert alone.estimate.prompt == pytest.approx(1.25 * STEP, rel=0.05)
    assert alone.estimate.tokens == pytest.approx(1.25 * 7 * STEP, rel=0.05)
    assert alone.alone.total == pytest.approx(alone.estimate.total, rel=0.05)
    timed.scheduler.add(make_sequence(2, max_new=20))
    timed.step()
    timed.scheduler.add(make_sequence(3, max_new=10))
    behind = timed.ask(4, 2.0)
    assert behind.num_before == 2
    assert behind.estimate.waiting == pytest.approx(1.25 * 29 * STEP, rel=0.05)
    assert behind.alone.total < behind.left < behind.estimate.total
    assert timed.ask(5, behind.estimate.total + 0.1).can_be_met


def test_nothing_is_refused_of_which_nothing_is_known_while_nobody_else_is_there() -> None:
    timed = Timed()
    assert timed.ask(1, 0.001).can_be_met
    assert not timed.ask(2, 0.001).can_be_met


def test_no_promise_is_made_that_breaks_another() -> None:
    timed = Timed(max_slots=1)
    timed.learn()
    assert timed.ask(1, 5.0, max_new=8).can_be_met
    timed.step()
    assert timed.ask(2, 5.0, max_new=8).can_be_met
    ahead = timed.ask(3, 60.0, max_new=35, priority=-1)
    assert ahead.breaks_another
    assert ahead.estimate.total < ahead.left
    assert timed.ask(4, 60.0, max_new=35).can_be_met, "which comes behind the others"


def test_one_that_has_to_begin_now_comes_first_and_takes_a_slot_and_memory() -> None:
    """Those of higher priority keep coming, and would be before it for ever."""
    timed = Timed(max_slots=2, num_blocks=12)
    timed.learn()
    assert timed.ask(1, 6.0, max_new=12).can_be_met
    sequence = timed.scheduler._sequences[1]
    for id in range(2, 9):
        timed.scheduler.add(make_sequence(id, length=16, max_new=20, priority=-9))
    while sequence.status is not Status.FINISHED:
        timed.step()
    assert sequence.promise is not None
    assert timed.now <= sequence.promise.due_at
    assert timed.scheduler.num_running + timed.scheduler.num_waiting >= 4


def test_those_with_a_promise_are_preempted_last() -> None:
    timed = Timed(max_slots=3, num_blocks=16)
    timed.learn()
    for id in (1, 2):
        timed.scheduler.add(make_sequence(id, length=15, max_new=20))
        timed.step()
        timed.step()
    assert timed.ask(3, 30.0, length=7, max_new=12).can_be_met
    preempted: set[int] = set()
    for _ in range(10):
        plan = planned(timed.scheduler)
        preempted.update(plan.preempted)
        timed.now += STEP
        timed.scheduler.commit(answer(plan, *[7 for row in plan.rows if row.is_sampled]))
    assert preempted == {2}
    assert 3 in {each.id for each in timed.scheduler._batch.running}


def test_one_that_has_to_begin_now_takes_the_slot_of_one_without_a_promise() -> None:
    timed = Timed(max_slots=1)
    timed.learn()
    timed.scheduler.add(make_sequence(1, max_new=60))
    timed.step()
    moved = make_sequence(2, max_new=4)
    moved.promise = Promise(timed.now + 0.9)
    timed.scheduler.add(moved)
    while moved.status is not Status.FINISHED:
        timed.step()
    assert timed.now <= moved.promise.due_at


def test_prompts_of_others_leave_steps_short_beside_a_promise() -> None:
    """Each token takes a hundredth of a second: a step with 64 of another's prompt would take far too long."""
    timed = Timed(max_slots=4, max_step_tokens=64)
    pace = timed.scheduler.promises.pace
    for number in (1, 2, 4, 8, 16, 32, 64) * 20:
        pace.begin()
        timed.now += 0.01 * number
        pace.observe(number)
    assert timed.ask(1, 5.0, max_new=20).can_be_met
    timed.scheduler.commit(answer(planned(timed.scheduler), 7))
    timed.scheduler.add(make_sequence(2, length=64))
    plan = planned(timed.scheduler)
    assert 1 < plan.num_tokens <= 25
    timed.scheduler.commit(answer(plan, 7))
    timed.now += 4.5
    plan = planned(timed.scheduler)
    assert plan.num_tokens == 1 + LEAST_BESIDE, "one that runs goes on, however late it is"


def test_one_that_was_passed_too_often_is_passed_no_more() -> None:
    timed = Timed(max_slots=1)
    timed.learn()
    first = make_sequence(2, max_new=2)
    timed.scheduler.add(first)
    late = make_sequence(3, max_new=2)
    late.promise = Promise(timed.now + 0.2)
    timed.scheduler.add(late)
    first.num_passed = MAX_PASSED
    timed.scheduler.promises.plan()
    assert timed.scheduler.promises.in_turn([first, late]) == [first, late]
    first.num_passed = MAX_PASSED - 1
    plan = planned(timed.scheduler)
    assert [each.sequence_id for each in plan.admitted] == [3]
    assert first.num_passed == MAX_PASSED


def test_estimates_follow_the_answers_and_errors_are_forgotten() -> None:
    timed = Timed()
    timed.learn()
    pace = timed.scheduler.promises.pace
    before = pace.margin
    pace.answered(1.0, 3.0)
    assert pace.margin > 1.4 * before
    timed.now += 300.0
    assert pace.margin == pytest.approx(before, rel=0.01)


def test_a_promise_made_elsewhere_is_kept_without_being_judged() -> None:
    timed = Timed(max_slots=1)
    timed.learn()
    moved = make_sequence(1, max_new=4)
    moved.promise = Promise(timed.now + 0.5)
    timed.scheduler.add(moved)
    assert moved.promise.latest_start < moved.promise.due_at
    while timed.scheduler.num_running or timed.scheduler.num_waiting:
        timed.step()
    assert not timed.scheduler.promises
