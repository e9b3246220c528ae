"""The budget of a step follows the machine's speed, within its limits, and steps of any budget do the same work."""

import pytest

from penstock.contract.output import Output
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.step_budget import FLOOR, GRAIN, TARGET_SECONDS, StepBudget
from tests.router.scheduling.small_schedulers import answer, make_sequence, planned


def run(budget: StepBudget, tokens_a_second: float, num_steps: int = 30, overhead: float = 0.002) -> None:
    """Lets full steps come back from a machine of this speed."""
    for _ in range(num_steps):
        budget.observe(budget.tokens, overhead + budget.tokens / tokens_a_second)


@pytest.mark.parametrize("measured", [FLOOR, 176, 928, 4096])
def test_replicas_that_measured_otherwise_come_to_the_same(measured: int) -> None:
    budget = StepBudget(measured, FLOOR, 4096)
    run(budget, 3000)
    assert budget.tokens == pytest.approx(3000 * TARGET_SECONDS, rel=0.1)
    assert budget.tokens % 16 == 0


def test_it_follows_a_machine_that_slows_down_and_recovers() -> None:
    budget = StepBudget(750, FLOOR, 4096)
    run(budget, 600)
    assert budget.tokens == pytest.approx(600 * TARGET_SECONDS, rel=0.1)
    run(budget, 3000)
    assert budget.tokens == pytest.approx(3000 * TARGET_SECONDS, rel=0.1)


def test_it_stays_within_its_limits() -> None:
    budget = StepBudget(928, FLOOR, 4096)
    run(budget, 20)
    assert budget.tokens == FLOOR
    run(budget, 1e6)
    assert budget.tokens == 4096
    assert StepBudget(16, FLOOR, 4096).tokens == FLOOR


def test_one_slow_step_changes_little() -> None:
    budget = StepBudget(928, FLOOR, 4096)
    budget.observe(928, 10.0)
    assert budget.tokens >= 600


def test_small_steps_tell_nothing() -> None:
    budget = StepBudget(928, FLOOR, 4096)
    budget.observe(40, 0.2)
    assert budget.tokens == 928


def test_a_given_budget_is_kept() -> None:
    budget = StepBudget(176, 512, 512)
    run(budget, 20)
    assert budget.tokens == 512


def test_decode_rows_leave_room_for_a_chunk() -> None:
    """More sequences run than the budget has tokens, and a prompt is computed beside them."""
    scheduler = Scheduler(block_size=4, num_blocks=4000, max_slots=200, max_step_tokens=4096,
                          budget=StepBudget(FLOOR, FLOOR, 4096))
    for number in range(1, 71):
        scheduler.add(make_sequence(number, 4, max_new=50))
    num_planned = []
    while scheduler.num_waiting:
        plan = planned(scheduler)
        num_planned.append(plan.num_tokens)
        scheduler.commit(answer(plan, *(7 for row in plan.rows if row.output is Output.SAMPLE)))
    assert max(num_planned) <= 70 + GRAIN
    scheduler.add(make_sequence(71, 40))
    plan = planned(scheduler)
    assert (plan.num_decode_rows, plan.num_tokens) == (70, 70 + GRAIN)


def test_no_step_is_larger_than_the_shards_allow() -> None:
    scheduler = Scheduler(block_size=4, num_blocks=100, max_slots=4, max_step_tokens=32,
                          budget=StepBudget(FLOOR, FLOOR, FLOOR))
    scheduler.add(make_sequence(1, 60))
    assert planned(scheduler).num_tokens == 32
