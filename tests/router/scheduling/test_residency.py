"""Which adapters are on the shards: loaded on first use, unloaded for others' sake, never while in use."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.router.scheduling.residency import AdapterOrders, AdapterState, Residency


def make(budget: int, *sizes: int) -> Residency:
    """The adapters 1, 2, … of these sizes."""
    residency = Residency(budget)
    for number, size in enumerate(sizes, 1):
        residency.know(number, size)
    return residency


def load(residency: Residency, *numbers: int) -> None:
    for number in numbers:
        assert residency.orders([number]) == AdapterOrders(load=(number,))
        residency.loaded(number)


def test_loads_on_first_use():
    residency = make(10, 4, 4, 4)
    assert not residency.orders([])
    assert not residency.is_loaded(1)
    assert residency.orders([1, 2, 1]) == AdapterOrders(load=(1, 2))
    assert [residency.state(number) for number in (1, 2, 3)] == [
        AdapterState.LOADING, AdapterState.LOADING, AdapterState.KNOWN]
    assert not residency.orders([1, 2])
    residency.loaded(1)
    assert residency.is_loaded(1)
    assert residency.num_used == 8
    assert residency.is_loaded(0)


def test_unloads_the_least_recently_used_and_loads_once_that_is_done():
    residency = make(10, 4, 4, 4)
    load(residency, 1, 2)
    residency.hold(1)
    residency.release(1)
    assert residency.orders([3]) == AdapterOrders(unload=(2,))
    assert not residency.orders([3]), "the room is on its way, no other is unloaded for it"
    residency.unloaded(2)
    assert residency.orders([3]) == AdapterOrders(load=(3,))


def test_one_in_use_stays():
    residency = make(10, 4, 4, 4)
    load(residency, 1, 2)
    residency.hold(1)
    residency.hold(2)
    assert not residency.orders([3])
    assert residency.is_crowded_out(3)
    residency.release(1)
    assert not residency.is_crowded_out(3)
    assert residency.orders([3]) == AdapterOrders(unload=(1,))


def test_nothing_is_unloaded_in_vain():
    residency = make(10, 4, 4, 10)
    load(residency, 1, 2)
    residency.hold(2)
    assert not residency.orders([3])
    assert residency.is_loaded(1)


def test_the_older_one_goes_first_and_keeps_its_room():
    residency = make(10, 6, 6, 4, 4)
    load(residency, 1)
    assert residency.orders([2, 1]) == AdapterOrders(unload=(1,))
    assert not residency.orders([2, 3]), "what is free is the older one's"
    residency.unloaded(1)
    assert residency.orders([2, 1, 3]) == AdapterOrders(load=(2, 3))
    residency.loaded(2)
    assert not residency.orders([2, 1]), "2 is wanted by an older one, and 3 is not there yet"


def test_of_idle_ones_those_that_nobody_waits_for_go_first():
    residency = make(10, 4, 4, 4)
    load(residency, 1, 2)
    assert residency.orders([3, 1]) == AdapterOrders(unload=(2,))


def test_one_that_is_dropped_is_unloaded_when_idle():
    residency = make(10, 4, 4)
    load(residency, 1)
    residency.hold(1)
    residency.drop(1)
    assert not residency.orders([])
    residency.release(1)
    assert not residency.orders([1]), "an old request still waits for it"
    assert residency.orders([]) == AdapterOrders(unload=(1,))


def test_one_that_is_known_again_stays():
    residency = make(10, 4)
    load(residency, 1)
    residency.drop(1)
    residency.know(1, 4)
    assert not residency.orders([])


def test_a_loss_drops_all_marks_and_unloads_what_may_be_left():
    residency = make(10, 4, 4)
    load(residency, 1)
    assert residency.orders([2]) == AdapterOrders(load=(2,))
    residency.forget()
    assert not residency.is_loaded(1)
    assert residency.orders([1]) == AdapterOrders(unload=(1, 2))
    assert not residency.orders([1])
    residency.unloaded(1)
    assert residency.orders([1]) == AdapterOrders(load=(1,))


def test_one_that_could_not_be_loaded_leaves_its_room():
    residency = make(5, 4)
    assert residency.orders([1]) == AdapterOrders(load=(1,))
    residency.failed(1)
    assert (residency.state(1), residency.num_used) == (AdapterState.KNOWN, 0)


class Shards(RuleBasedStateMachine):
    """Requests that come, run and end in any order, over shards that carry out orders late, fail at some, and die."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = {1: 1, 2: 2, 3: 3, 4: 5, 5: 8}
        self.residency = make(8, *self.sizes.values())
        self.on_shards: set[int] = set()
        self.to_load: list[int] = []
        self.to_unload: list[int] = []
        self.waiting: list[int] = []
        self.running: Counter[int] = Counter()

    def order(self) -> None:
        orders = self.residency.orders(self.waiting)
        assert not {*orders.unload} & {number for number, count in self.running.items() if count}, "unloaded in use"
        self.to_load += orders.load
        self.to_unload += orders.unload

    @rule(number=st.integers(1, 5))
    def arrive(self, number: int) -> None:
        if len(self.waiting) < 8:
            self.waiting.append(number)

    @rule(number=st.integers(1, 5))
    def drop(self, number: int) -> None:
        self.residency.drop(number)

    @rule()
    def admit(self) -> None:
        self.order()
        for number in self.waiting:
            if self.residency.is_loaded(number):
                assert number in self.on_shards, "a row would name an adapter that is not loaded"
                self.residency.hold(number)
                self.running[number] += 1
                self.waiting.remove(number)
                return

    @precondition(lambda self: self.to_load)
    @rule(fails=st.booleans())
    def load(self, fails: bool) -> None:
        number = self.to_load.pop(0)
        assert number not in self.on_shards
        if fails:
            self.residency.failed(number)
            self.waiting = [each for each in self.waiting if each != number]
        else:
            self.on_shards.add(number)
            self.residency.loaded(number)

    @precondition(lambda self: self.to_unload)
    @rule()
    def unload(self) -> None:
        number = self.to_unload.pop()
        self.on_shards.discard(number)
        self.residency.unloaded(number)

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.running.elements())))
        self.residency.release(number)
        self.running[number] -= 1

    @rule(survive=st.booleans())
    def die(self, survive: bool) -> None:
        for number in self.running.elements():
            self.residency.release(number)
        self.waiting = [*self.running.elements(), *self.waiting]
        self.running.clear()
        self.to_load.clear()
        self.to_unload.clear()
        if not survive:
            self.on_shards.clear()
        self.residency.forget()

    @invariant()
    def budget_holds(self) -> None:
        assert sum(self.sizes[number] for number in self.on_shards) <= self.residency.num_used <= 8

    @invariant()
    def those_in_use_are_there(self) -> None:
        assert {number for number, count in self.running.items() if count} <= self.on_shards

    def teardown(self) -> None:
        """All that wait get their turn, the oldest first."""
        for _ in range(100):
            self.order()
            while self.to_unload:
                self.unload()
            while self.to_load:
                self.load(fails=False)
            self.admit()
            for number in [*self.running.elements()]:
                self.residency.release(number)
            self.running.clear()
            if not self.waiting:
                return
        raise AssertionError(f"{self.waiting} wait for ever")


Shards.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestShards = Shards.TestCase
