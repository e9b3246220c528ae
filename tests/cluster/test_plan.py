"""What the keeper decides from what it knows of its groups."""

from penstock.cluster.plan import Decision, Unit, decide
from penstock.cluster.reports import Report, State


def part(state: State, port: int = 0) -> Report:
    return Report(state, "10.0.0.1", f"10.0.0.1:{port}" if port else "")


def ready(name: str, age: int) -> Unit:
    return Unit(name, (part(State.READY, 1000 + age),), age=age)


def nothing(*addresses: str) -> Decision:
    return Decision(0, [], [], [], list(addresses))


def test_what_is_right_is_left_alone():
    assert decide([ready("a", 0), ready("b", 1)], 2) == nothing("10.0.0.1:1000", "10.0.0.1:1001")


def test_missing_groups_are_made_and_those_that_wait_for_a_place_count():
    assert decide([Unit("a", (None,))], 3).num_to_make == 2


def test_a_group_is_started_once_all_its_parts_have_a_place():
    assert decide([Unit("a", (part(State.PLACED), None))], 1) == nothing()
    assert decide([Unit("a", (part(State.PLACED), part(State.PLACED)))], 1).start == ["a"]


def test_a_part_that_did_not_start_is_started_again():
    assert decide([Unit("a", (part(State.STARTING, 5), part(State.PLACED)))], 1).start == ["a"]


def test_of_too_many_the_youngest_drains_and_is_listed_until_it_has_ended():
    decision = decide([ready("a", 0), ready("b", 1)], 1)
    assert decision == Decision(0, [], ["b"], [], ["10.0.0.1:1000", "10.0.0.1:1001"])
    drains = Unit("b", (part(State.STOPPING, 1001),), age=1)
    assert decide([ready("a", 0), drains], 1) == nothing("10.0.0.1:1000", "10.0.0.1:1001")
    over = Unit("b", (part(State.ENDED, 1001),), age=1)
    assert decide([ready("a", 0), over], 1) == Decision(0, [], [], ["b"], ["10.0.0.1:1000"])


def test_of_too_many_those_go_first_that_take_no_requests():
    starting = Unit("a", (part(State.STARTING, 1),), age=0)
    assert decide([starting, ready("b", 1)], 1).stop == ["a"]


def test_one_that_waits_for_a_place_and_is_too_many_is_removed_at_once():
    assert decide([ready("a", 0), Unit("b", (None,), age=1)], 1) == Decision(0, [], [], ["b"], ["10.0.0.1:1000"])
    placed = Unit("b", (part(State.PLACED),), age=1)
    assert decide([ready("a", 0), placed], 1) == Decision(0, [], [], ["b"], ["10.0.0.1:1000"])


def test_a_lost_group_is_replaced_and_removed():
    assert decide([Unit("a", (None,), is_lost=True)], 1) == Decision(1, [], [], ["a"], [])


def test_a_launcher_that_ended_by_itself_is_replaced():
    assert decide([Unit("a", (part(State.ENDED, 7),))], 1) == Decision(1, [], [], ["a"], [])


def test_other_parts_of_a_lost_group_end_before_it_is_removed():
    runs = Unit("a", (None, part(State.READY, 7)), is_lost=True)
    assert decide([runs], 1) == Decision(1, [], ["a"], [], ["10.0.0.1:7"])
    ends = Unit("a", (None, part(State.STOPPING, 7)), is_lost=True)
    assert decide([ends], 1) == Decision(1, [], [], [], ["10.0.0.1:7"])
    over = Unit("a", (None, part(State.ENDED, 7)), is_lost=True)
    assert decide([over], 1) == Decision(1, [], [], ["a"], [])


def test_in_the_end_all_drain_and_are_removed():
    assert decide([ready("a", 0), Unit("b", (None,), age=1)], 0) == Decision(
        0, [], ["a"], ["b"], ["10.0.0.1:1000"])
