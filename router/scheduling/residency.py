"""Which adapters (LoRA) the shards hold, within a budget of bytes: loaded on first use, let go of when others need the
room and no sequence uses them, the least recently used first. Those that the background wants get only room that no
others use, or have used a moment ago, for they are expected back.

An adapter is a number here; 0 stands for none. It is known, loading, loaded or unloading. The one who drives the shards
asks for `orders`, carries them out in any order, and tells what came of each.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from penstock.router.scheduling.priorities import MOMENT_SECONDS


class AdapterState(Enum):
    """Tells whether the shards hold an adapter. Its bytes count from the order to load it until it is known to be
    unloaded."""

    KNOWN = "known"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


@dataclass(frozen=True, slots=True)
class AdapterOrders:
    """Names adapters that all shards are to load, and to unload."""

    load: tuple[int, ...] = ()
    unload: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.load or self.unload)


@dataclass(slots=True)
class _Resident:
    """An adapter that is on the shards, on its way to them, or being unloaded."""

    num_bytes: int
    state: AdapterState = AdapterState.LOADING
    num_holders: int = 0
    """How many sequences with a slot use it: no step that names one of them is in flight any more once it is 0."""
    num_others: int = 0
    """How many of them are not of the background."""
    others_left_at: float = -math.inf
    """When the last of those let go of it."""


class Residency:
    """Holds no more than `budget` bytes of adapters on the shards. Thousands may be known."""

    def __init__(self, budget: int = 0) -> None:
        self.budget = budget
        self.now = 0.0
        """The time, in seconds, when orders were last asked for."""
        self.num_used = 0
        """The bytes of all adapters that are not merely known."""
        self._sizes: dict[int, int] = {}
        """The bytes of all adapters, by number."""
        self._residents: OrderedDict[int, _Resident] = OrderedDict()
        """Those that are not merely known, the least recently used first."""
        self._dropped: set[int] = set()
        self._leftovers: list[int] = []
        """Those that shards before these may have left behind, and that nobody has been told to unload."""

    def know(self, number: int, num_bytes: int) -> None:
        """Takes an adapter in, which sequences may use from now on. It fits into the budget."""
        assert number > 0
        assert num_bytes <= self.budget, f"adapter {number} has {num_bytes} bytes, the budget is {self.budget}"
        self._sizes[number] = num_bytes
        self._dropped.discard(number)

    @property
    def residents(self) -> Collection[int]:
        """Those that are on the shards, on their way to them, or being unloaded."""
        return self._residents.keys()

    def know_only(self, numbers: Collection[int]) -> None:
        """Forgets all others, which neither a sequence uses nor a shard holds."""
        self._sizes = {number: size for number, size in self._sizes.items() if number in numbers}
        assert self._sizes.keys() >= self._residents.keys()

    def drop(self, number: int) -> None:
        """Has an adapter that new requests can't name unloaded as soon as none of the old ones needs it."""
        if number in self._residents:
            self._dropped.add(number)

    def state(self, number: int) -> AdapterState:
        resident = self._residents.get(number)
        return AdapterState.KNOWN if resident is None else resident.state

    def is_loaded(self, number: int) -> bool:
        """Tells whether a sequence that uses the adapter can run; one without can always."""
        return not number or self.state(number) is AdapterState.LOADED

    def bytes_with(self, numbers: Iterable[int]) -> int:
        """Returns the bytes of adapters together with those of all that are on the shards, or on their way."""
        missing = {*numbers} - self._residents.keys() - {0}
        return self.num_used + sum(self._sizes[number] for number in missing)

    def is_crowded_out(self, number: int) -> bool:
        """Tells whether there is no room for an adapter, whatever is unloaded, beside those that sequences hold."""
        held = sum(each.num_bytes for key, each in self._residents.items() if each.num_holders and key != number)
        return bool(number) and held + self._sizes[number] > self.budget

    def fits_beside_others(self, number: int) -> bool:
        """Tells whether there is room for an adapter beside those that are kept for others than the background."""
        kept = sum(self._sizes[key] for key in self._kept() if key != number)
        return kept + self._sizes[number] <= self.budget

    def _kept(self) -> list[int]:
        """Returns the adapters that others than the background use, or have used a moment ago."""
        return [number for number, each in self._residents.items()
                if each.num_others or self.now - each.others_left_at < MOMENT_SECONDS]

    def hold(self, number: int, is_background: bool = False) -> None:
        """Notes that a sequence gets a slot."""
        if number:
            assert self.is_loaded(number), f"adapter {number} is used, and {self.state(number).value}"
            self._residents[number].num_holders += 1
            self._residents[number].num_others += not is_background
            self._residents.move_to_end(number)

    def release(self, number: int, is_background: bool = False) -> None:
        """Notes that the slot of a sequence is free."""
        if number:
            resident = self._residents[number]
            resident.num_holders -= 1
            if not is_background:
                resident.num_others -= 1
                resident.others_left_at = self.now
            self._residents.move_to_end(number)

    def orders(self, wanted: Iterable[int], of_background: Iterable[int] = ()) -> AdapterOrders:
        """Says what to load and unload next, for sequences that wait and want these, the oldest first, and then for
        those of the background.

        An older one's adapter takes the room of a younger one's. Nothing is unloaded before that makes enough room.
        """
        others = dict.fromkeys(wanted)
        queue = list(others | dict.fromkeys(of_background))
        load: list[int] = []
        unload, self._leftovers = self._leftovers, []
        unload += self._begin_unload([number for number in self._idle(queue) if number in self._dropped])
        free = self.budget - self.num_used
        coming = sum(each.num_bytes for each in self._residents.values() if each.state is AdapterState.UNLOADING)
        for index, number in enumerate(queue):
            missing = self._sizes[number] - free
            if number in self._residents:
                continue
            if missing <= 0:
                self._residents[number] = _Resident(self._sizes[number])
                self.num_used += self._sizes[number]
                free = -missing
                load.append(number)
                continue
            spared = queue[:index] if number in others else [*queue[:index], *self._kept()]
            victims = self._victims(missing - coming, spared, queue[index:])
            if victims is not None:
                unload += self._begin_unload(victims)
                # What is free now, and a part of what will be, is this one's: younger ones get none of it.
                free, coming = 0, coming + sum(self._sizes[each] for each in victims) - missing
        return AdapterOrders(tuple(load), tuple(unload))

    def _victims(self, missing: int, spared: Collection[int], younger: Collection[int]) -> list[int] | None:
        """Returns which adapters to unload for so many bytes; None if all that can be unloaded are not enough."""
        victims: list[int] = []
        for number in sorted(self._idle(spared), key=lambda each: each in younger):
            if missing <= 0:
                break
            victims.append(number)
            missing -= self._sizes[number]
        return victims if missing <= 0 else None

    def _idle(self, spared: Collection[int]) -> list[int]:
        """Returns the loaded adapters that nobody uses, the least recently used first."""
        return [number for number, each in self._residents.items()
                if each.state is AdapterState.LOADED and not each.num_holders and number not in spared]

    def _begin_unload(self, numbers: list[int]) -> list[int]:
        for number in numbers:
            self._residents[number].state = AdapterState.UNLOADING
        return numbers

    def loaded(self, number: int) -> None:
        """Notes that every shard has loaded an adapter."""
        assert self.state(number) is AdapterState.LOADING
        self._residents[number].state = AdapterState.LOADED
        self._residents.move_to_end(number)

    def failed(self, number: int) -> None:
        """Notes that no shard keeps anything of an adapter that was to be loaded."""
        assert self.state(number) is AdapterState.LOADING
        self._leave(number)

    def unloaded(self, number: int) -> None:
        """Notes that every shard has unloaded an adapter."""
        assert self.state(number) is AdapterState.UNLOADING
        self._leave(number)

    def _leave(self, number: int) -> None:
        self.num_used -= self._residents.pop(number).num_bytes
        self._dropped.discard(number)

    def forget(self) -> None:
        """Drops all marks after the loss of the group. Shards that have survived it may still hold adapters, so all
        that may be there are unloaded before they are loaded anew."""
        assert not any(each.num_holders for each in self._residents.values())
        self._leftovers = self._begin_unload([*self._residents])

    def counts(self) -> Counter[AdapterState]:
        """Returns how many adapters are in each state, but for those that are merely known."""
        return Counter(each.state for each in self._residents.values())
