"""Sequences with adapters: who waits for a load, who gets the room, what a plan names, and what a loss leaves."""

from penstock.contract.plan import Plan
from penstock.router.scheduling.admission import MAX_PASSED
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.priorities import BACKGROUND, MOMENT_SECONDS
from penstock.router.scheduling.residency import AdapterOrders, Residency
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from tests.adapter_inputs import adapter_input, number_in
from tests.router.scheduling.small_schedulers import GREEDY, answer, make_sequence, planned, step


def make(budget: int, *sizes: int, max_slots: int = 4) -> Scheduler:
    """A scheduler that knows the adapters 1, 2, … of these sizes."""
    residency = Residency(budget)
    for number, size in enumerate(sizes, 1):
        residency.know(number, size)
    return Scheduler(block_size=4, num_blocks=100, max_slots=max_slots, max_step_tokens=16, eos_token_ids={99},
                     adapters=residency)


def add(scheduler: Scheduler, id: int, adapter: int = 0, max_new: int = 8) -> Sequence:
    sequence = Sequence(id=id, tokens=[100, 101, 102, 103], prompt_length=4, max_length=4 + max_new, sampling=GREEDY,
                        side_inputs=adapter_input(adapter))
    scheduler.add(sequence)
    return sequence


def carry_out(scheduler: Scheduler, now: float = 0.0) -> AdapterOrders:
    orders = scheduler.order_adapters(now)
    for number in orders.unload:
        scheduler.adapters.unloaded(number)
    for number in orders.load:
        scheduler.adapters.loaded(number)
    return orders


def admitted(plan: Plan) -> list[int]:
    return [admission.sequence_id for admission in plan.admitted]


def test_waits_for_its_adapter_while_others_run():
    scheduler = make(4, 2)
    add(scheduler, 0, adapter=1)
    add(scheduler, 1)
    assert scheduler.order_adapters() == AdapterOrders(load=(1,))
    plan, _ = step(scheduler, 7)
    assert admitted(plan) == [1]
    scheduler.adapters.loaded(1)
    plan = planned(scheduler)
    assert admitted(plan) == [0]
    assert [number_in(row.initial_state) for row in plan.rows if row.initial_state] == [1]


def test_adapters_share_no_prefix():
    scheduler = make(4, 2, 2)
    sequences = [add(scheduler, 0, adapter=1, max_new=1), add(scheduler, 1, adapter=2, max_new=1),
                 add(scheduler, 2, max_new=1)]
    carry_out(scheduler)
    step(scheduler, 7, 7, 7)
    assert all(sequence.finish_reason is FinishReason.LENGTH for sequence in sequences)
    assert [[row.start for row in planned(scheduler).rows] for _ in [add(scheduler, 3, adapter=1)]] == [[0]]


def test_one_in_flight_keeps_its_adapter_after_its_end():
    scheduler = make(2, 2, 2)
    add(scheduler, 0, adapter=1)
    carry_out(scheduler)
    plan = planned(scheduler)
    scheduler.finish(0, FinishReason.CANCELLED)
    add(scheduler, 1, adapter=2)
    assert not scheduler.order_adapters()
    scheduler.commit(answer(plan, 7))
    assert carry_out(scheduler) == AdapterOrders(unload=(1,))
    assert carry_out(scheduler) == AdapterOrders(load=(2,))
    assert admitted(planned(scheduler)) == [1]


def test_one_whose_adapter_has_no_room_gets_its_turn():
    """A stream of younger ones, whose adapter is loaded, passes it so often and no more."""
    scheduler = make(2, 2, 2)
    add(scheduler, 0, adapter=1, max_new=2)
    carry_out(scheduler)
    step(scheduler, 7)
    old = add(scheduler, 1, adapter=2)
    for id in range(2, 200):
        add(scheduler, id, adapter=1, max_new=2)
        carry_out(scheduler)
        plan = scheduler.plan()
        if plan is None:
            continue
        if 1 in admitted(plan):
            break
        scheduler.commit(answer(plan, *[7] * sum(row.is_answered for row in plan.rows)))
    assert old.slot is not None
    assert MAX_PASSED <= id < MAX_PASSED + 20


def test_one_without_an_adapter_never_waits_for_adapters():
    scheduler = make(2, 2, 2)
    add(scheduler, 0, adapter=1)
    carry_out(scheduler)
    step(scheduler, 7)
    add(scheduler, 1, adapter=2).num_passed = MAX_PASSED
    add(scheduler, 2, adapter=1)
    add(scheduler, 3)
    assert not carry_out(scheduler)
    assert admitted(planned(scheduler)) == [3]


def test_after_a_loss_everything_is_loaded_anew():
    scheduler = make(4, 2)
    add(scheduler, 0, adapter=1)
    carry_out(scheduler)
    step(scheduler, 7)
    scheduler.forget_all()
    assert scheduler.plan() is None
    assert scheduler.order_adapters() == AdapterOrders(unload=(1,))
    assert scheduler.plan() is None
    scheduler.adapters.unloaded(1)
    assert carry_out(scheduler) == AdapterOrders(load=(1,))
    plan = planned(scheduler)
    assert [number_in(row.initial_state) for row in plan.rows if row.initial_state] == [1]


def test_a_suspect_that_runs_alone_gets_room_for_its_adapter():
    """The others hold theirs, and get no rows until the suspect has run: the youngest lets go of it."""
    scheduler = make(2, 2, 2)
    other = add(scheduler, 1, adapter=2)
    carry_out(scheduler)
    step(scheduler, 7)
    scheduler.suspects.accuse([add(scheduler, 2, adapter=1)])
    scheduler.suspects._cohorts[0].is_alone = True
    assert not scheduler.order_adapters(), "its room is taken"
    assert scheduler.plan() is None
    assert other.slot is None
    assert carry_out(scheduler) == AdapterOrders(unload=(2,))
    assert carry_out(scheduler) == AdapterOrders(load=(1,))
    plan = planned(scheduler)
    assert (admitted(plan), plan.preempted) == ([2], (1,))


def test_a_beam_that_waits_for_others_of_its_search_wants_no_adapter() -> None:
    """One of those may wait for the trial of a suspect, which wants an adapter that has no room beside it."""
    scheduler = make(2, 2, 2)
    beam = make_sequence(0, is_beam=True, adapter=1)
    beam.is_undecided = True
    scheduler.add(beam)
    scheduler.add(make_sequence(1, adapter=2))
    assert scheduler.order_adapters() == AdapterOrders(load=(2,))


def test_adapters_that_others_have_just_used_stay_though_the_background_waits():
    """There is room for one. Adapter 1 is used at 100 s, and a line wants adapter 2."""
    scheduler = make(2, 2, 2)
    scheduler.order_adapters(100.0)
    scheduler.add(make_sequence(0, max_new=1, adapter=1))
    carry_out(scheduler, 100.0)
    scheduler.add(make_sequence(1, adapter=2, priority=BACKGROUND))
    step(scheduler, 7)
    assert not scheduler.order_adapters(100.0 + MOMENT_SECONDS - 1)
    assert carry_out(scheduler, 100.0 + MOMENT_SECONDS) == AdapterOrders(unload=(1,))
    assert carry_out(scheduler, 100.0 + MOMENT_SECONDS) == AdapterOrders(load=(2,))
    assert admitted(planned(scheduler)) == [1]


def test_a_line_whose_adapter_has_no_room_beside_those_of_others_stops_no_other_line():
    """Another request holds adapter 1, which lines use, too; a line before them wants adapter 2. There is room for one,
    and for one line."""
    scheduler = make(2, 2, 2, max_slots=2)
    scheduler.add(make_sequence(0, max_new=300, adapter=1))
    carry_out(scheduler)
    scheduler.add(make_sequence(1, adapter=2, priority=BACKGROUND))
    lines = [make_sequence(id, 1, 1, adapter=1, priority=BACKGROUND) for id in range(2, MAX_PASSED + 12)]
    for each in lines:
        scheduler.add(each)
    for _ in range(200):
        plan = planned(scheduler)
        scheduler.commit(answer(plan, *[7] * sum(row.is_sampled for row in plan.rows)))
        carry_out(scheduler)
    assert scheduler.num_waiting == 1
