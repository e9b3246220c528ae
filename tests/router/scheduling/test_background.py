"""Sequences of the background get what nobody else waits for, and let go of it when somebody does."""

import pytest

from penstock.contract.plan import Plan
from penstock.router.scheduling.background import KEPT_PART, LENGTHENING, PART_OF_PROMPT
from penstock.router.scheduling.priorities import BACKGROUND, MOMENT_SECONDS
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.speculation import Speculation
from penstock.router.scheduling.wait_reasons import WaitReason
from tests.router.scheduling.small_schedulers import answer, make_scheduler, make_sequence, planned, step


def line(id: int, length: int = 4, max_new: int = 20) -> Sequence:
    return make_sequence(id, length, max_new, priority=BACKGROUND)


def own_step(scheduler: Scheduler) -> Plan:
    """Plans, and commits a token of each row that samples."""
    plan = planned(scheduler)
    scheduler.commit(answer(plan, *[7] * sum(row.is_sampled for row in plan.rows)))
    return plan


def told(scheduler: Scheduler, per_token: float, *sizes: int) -> None:
    """Tells the scheduler that steps of so many tokens took 1 s and `per_token` seconds for each token."""
    for size in sizes:
        scheduler._background.observe(size, 1 + per_token * size)


def test_the_background_has_everything_while_nobody_else_is_there() -> None:
    scheduler = make_scheduler(max_slots=4, max_step_tokens=64)
    for id in range(1, 7):
        scheduler.add(line(id))
    assert len(planned(scheduler).rows) == 4
    assert len(planned(scheduler).rows) == 4, "a second step is planned while the first is in flight"


def test_prompts_of_the_background_alone_fill_a_step_where_guesses_are_made() -> None:
    scheduler = Scheduler(block_size=16, num_blocks=200, max_slots=32, max_step_tokens=2048,
                          speculation=Speculation(4, 32))
    for id in range(4):
        scheduler.add(line(id, length=500))
    assert [row.num_inputs for row in planned(scheduler).rows] == [500] * 4


def test_who_waits_for_a_slot_takes_one_of_the_background_that_came_last() -> None:
    scheduler = make_scheduler(max_slots=2)
    for id in (1, 2, 3):
        scheduler.add(line(id))
    step(scheduler, 10, 20)
    scheduler.add(make_sequence(4))
    plan, _ = step(scheduler, 40)
    assert plan.preempted == (2,)
    assert [each.sequence_id for each in plan.admitted] == [4]
    assert scheduler.occupancy.waits == {WaitReason.SLOTS: 2}


def test_a_step_in_flight_keeps_the_slot_until_it_is_back_and_nobody_else_is_preempted_for_it() -> None:
    scheduler = make_scheduler(max_slots=3)
    lines = [line(id) for id in (1, 2, 3)]
    for each in lines:
        scheduler.add(each)
    first = planned(scheduler)
    scheduler.add(make_sequence(4))
    for _ in range(2):
        plan = scheduler.plan()
        assert plan is None or not plan.admitted
        assert [each.status for each in lines] == [Status.RUNNING, Status.RUNNING, Status.DRAINING]
    scheduler.commit(answer(first, 10, 20, 30))
    assert [each.sequence_id for each in planned(scheduler).admitted] == [4]


def test_who_waits_for_memory_takes_that_of_the_background() -> None:
    scheduler = make_scheduler(num_blocks=8, max_slots=4, max_step_tokens=64)
    scheduler.add(line(1, length=12))
    scheduler.add(line(2, length=12))
    step(scheduler, 10, 20)
    scheduler.add(make_sequence(3, length=12))
    plan, _ = step(scheduler, 30)
    assert plan.preempted == (2,)
    assert [each.sequence_id for each in plan.admitted] == [3]


def test_none_of_the_background_begins_while_others_wait_for_memory() -> None:
    scheduler = make_scheduler(num_blocks=8, max_slots=4, max_step_tokens=64)
    scheduler.add(make_sequence(1, length=20))
    step(scheduler, 10)
    scheduler.add(make_sequence(2, length=20))
    scheduler.add(line(3))
    assert own_step(scheduler).admitted == ()
    assert scheduler.occupancy.waits == {WaitReason.MEMORY: 1, WaitReason.OTHERS: 1}


def test_a_part_of_the_memory_is_kept_free_for_others_while_they_are_there() -> None:
    """Two of the background grow until the younger one makes way; in a step each may take a block of it."""
    scheduler, preempted = make_scheduler(num_blocks=32, max_slots=4, max_step_tokens=64), list[int]()
    for id in (1, 2):
        scheduler.add(line(id, length=20, max_new=70))
    own_step(scheduler)
    scheduler.add(make_sequence(3, max_new=60))
    own_step(scheduler)
    while scheduler.num_running == 3:
        preempted += own_step(scheduler).preempted
        assert scheduler.memory.num_available >= 32 // KEPT_PART - 2
    assert preempted == [2]


def test_no_row_of_the_background_is_beside_a_prompt_of_others() -> None:
    scheduler = make_scheduler(max_step_tokens=16)
    scheduler.add(make_sequence(1, length=20))
    scheduler.add(line(2))
    assert [row.num_inputs for row in own_step(scheduler).rows] == [16]
    assert [row.num_inputs for row in own_step(scheduler).rows] == [4]
    assert [row.num_inputs for row in own_step(scheduler).rows] == [1, 1]


@pytest.mark.parametrize(("per_token", "most"), [(0.0, 31), (0.01, 10), (0.1, 1), (1.0, 1)])
def test_a_step_with_others_takes_little_longer_for_the_background(per_token: float, most: int) -> None:
    scheduler = make_scheduler(max_step_tokens=32)
    told(scheduler, per_token, 1, 2, 4, 8, 16, 32)
    scheduler.add(make_sequence(1))
    own_step(scheduler)
    scheduler.add(line(2, length=60))
    sizes = [row.num_inputs for row in own_step(scheduler).rows]
    assert sizes[0] == 1
    assert sizes[1] == most
    assert most == 1 or 1 + per_token * (1 + most) <= LENGTHENING * (1 + per_token)


@pytest.mark.parametrize("is_crowded", [False, True])
def test_nobody_waits_for_a_prompt_that_the_background_computes(is_crowded: bool) -> None:
    """A line and a request have one prompt but for its end, and the line has begun with it. One other decodes; where it
    is crowded, one more comes at each step."""
    scheduler = Scheduler(block_size=16, num_blocks=2000, max_slots=32, max_step_tokens=512)
    told(scheduler, 1.0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    scheduler.add(make_sequence(1, max_new=1000))
    own_step(scheduler)
    prompt = list(range(50_000, 51_000))
    scheduler.add(make_sequence(2, tokens=[*prompt, 1], priority=BACKGROUND))
    own_step(scheduler)
    scheduler.add(request := make_sequence(3, tokens=[*prompt, 2]))
    for id in range(4, 9):
        if is_crowded:
            scheduler.add(make_sequence(id, length=100, max_new=2))
        own_step(scheduler)
    assert len(request.tokens) > request.prompt_length


@pytest.mark.parametrize(("length", "num_left"), [(900, 1), (500, 0)])
def test_a_line_that_fits_beside_no_other_stops_none_and_one_that_would_gets_its_turn(
    length: int, num_left: int
) -> None:
    scheduler = Scheduler(block_size=16, num_blocks=64, max_slots=16, max_step_tokens=256)
    told(scheduler, 0.0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
    scheduler.add(make_sequence(1, 16, 800))
    own_step(scheduler)
    scheduler.add(line(2, length=length, max_new=4))
    for id in range(3, 103):
        scheduler.add(line(id, length=8, max_new=3))
    for _ in range(200):
        own_step(scheduler)
    assert scheduler.num_waiting == num_left


def test_lines_make_no_way_for_those_that_wait_for_an_adapter() -> None:
    adapters = Residency(1000)
    adapters.know(2, 100)
    scheduler = Scheduler(block_size=16, num_blocks=2000, max_slots=8, max_step_tokens=512, adapters=adapters)
    for id in range(1, 8):
        scheduler.add(make_sequence(id, adapter=2))
    lines = [line(id) for id in range(10, 15)]
    for each in lines:
        scheduler.add(each)
    while any(each.status is not Status.FINISHED for each in lines):
        assert not own_step(scheduler).preempted


def test_others_are_expected_back_for_a_moment_in_which_one_step_at_a_time_is_planned() -> None:
    scheduler = make_scheduler(max_slots=16, max_step_tokens=64)
    scheduler.add(make_sequence(1, max_new=1))
    own_step(scheduler)
    for id in range(2, 20):
        scheduler.add(line(id))
    plan = planned(scheduler)
    assert len(plan.rows) < 16
    assert scheduler.plan() is None, "who comes now would wait for two steps"
    scheduler.commit(answer(plan, *[7] * sum(row.is_sampled for row in plan.rows)))
    for _ in range(100):
        told(scheduler, 0.0, 1, 64)
        own_step(scheduler)
        if scheduler.num_running == 16:
            break
        assert scheduler._background.is_alone or scheduler.num_running <= 16 - 16 // KEPT_PART
    assert scheduler.num_running == 16
    assert scheduler._background._quiet_seconds >= MOMENT_SECONDS


def test_a_step_of_the_background_alone_takes_a_part_of_the_time_of_a_prompt_of_others() -> None:
    scheduler = make_scheduler(max_slots=15, max_step_tokens=200)
    told(scheduler, 0.1, 1, 2, 4, 8, 16, 32, 64, 128, 256)
    scheduler.add(line(100, length=190))
    for id in range(100):
        scheduler.add(make_sequence(id, length=150, max_new=1))
        own_step(scheduler)
    [row] = own_step(scheduler).rows
    assert 60 < row.num_inputs <= 1 + (PART_OF_PROMPT * (1 + 15) - 1) / 0.1


def test_one_that_needs_all_of_the_memory_runs_when_nothing_else_does() -> None:
    scheduler = make_scheduler(num_blocks=16, max_slots=8, max_step_tokens=64)
    scheduler.add(make_sequence(1, max_new=1))
    own_step(scheduler)
    scheduler.add(line(2, length=58, max_new=5))
    while scheduler.num_waiting or scheduler.num_running:
        own_step(scheduler)


def test_what_others_have_to_do_before_one_more_does_not_count_the_background() -> None:
    scheduler = make_scheduler(max_step_tokens=64)
    scheduler.add(line(1, length=12))
    step(scheduler, 10)
    scheduler.add(line(2, length=12))
    assert scheduler.load(is_background=False) == 0
    assert scheduler.load(is_background=True) == 3 + 3
    scheduler.add(make_sequence(3, length=8))
    assert scheduler.load(is_background=False) == 2
