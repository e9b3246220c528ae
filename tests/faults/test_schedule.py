"""The schedule of faults is drawn from its seed alone, and does not end a server by design."""

import itertools

import pytest

from tests.faults.faults import FAULTS
from tests.faults.schedule import KINDS, Event, choose, schedule


def first(seed: int, number: int = 4 * len(KINDS)) -> list[Event]:
    return list(itertools.islice(schedule(seed, KINDS), number))


def test_a_seed_gives_the_same_faults_again() -> None:
    assert first(5) == first(5)
    assert first(5) != first(6)


def test_each_kind_comes_before_any_comes_again() -> None:
    events = first(7)
    for begin in range(0, len(events), len(KINDS)):
        assert {event.kind for event in events[begin:begin + len(KINDS)]} == set(KINDS)


def test_two_faults_overlap_at_most() -> None:
    events = [event for seed in range(20) for event in first(seed)]
    assert any(event.overlaps for event in events)
    for before, event in itertools.pairwise(events):
        assert not event.overlaps or (before.kind.may_overlap and event.kind.may_overlap and not before.overlaps)


def test_every_kind_is_a_fault() -> None:
    assert [kind.name for kind in KINDS] == list(FAULTS)


def test_kinds_are_chosen_by_parts_of_their_names() -> None:
    assert [kind.name for kind in choose(["router killed", "crash"])] == [
        "shards crash", "router killed", "socket folder removed, router killed", "tokenizer away, router killed"]
    assert choose([]) == list(KINDS)
    with pytest.raises(ValueError, match="no kind of fault is called 'flood'"):
        choose(["flood"])
