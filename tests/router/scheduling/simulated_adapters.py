"""The adapters of the simulation: orders to the shards that are carried out late, and sometimes fail."""

import random
from collections import Counter
from collections.abc import Callable

from penstock.contract.side_inputs import namespace_of
from penstock.router.scheduling.priorities import MOMENT_SECONDS
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.scheduler import Scheduler
from tests.adapter_inputs import adapter_input
from tests.router.scheduling.shard_mirror import ShardMirror

ADAPTERS = {namespace_of(adapter_input(number)): number for number in range(4)}
"""Numbers by namespace; the first stands for none."""
SIZES = {1: 1, 2: 1, 3: 2}
BUDGET = 2
MAX_DELAY = 12
"""Turns until an order is carried out, at most."""


class SimulatedAdapters:
    """Takes the scheduler's orders; `fail` is called with the number of an adapter that could not be loaded."""

    def __init__(self, seed: int, counts: Counter[str], fail: Callable[[int], None]) -> None:
        self.random = random.Random(seed)
        self.residency = Residency(BUDGET)
        for number, size in SIZES.items():
            self.residency.know(number, size)
        self.pending: list[tuple[int, bool, int]] = []
        """The turns left, whether it is to be loaded, and the number."""
        self.now = 0.0
        self._counts = counts
        self._fail = fail

    def order(self, scheduler: Scheduler, is_idle: bool = False) -> None:
        """Takes the orders that the scheduler has a little later, or much later if nothing else is to be done."""
        self.now += MOMENT_SECONDS if is_idle and not self.pending else 0.5
        orders = scheduler.order_adapters(self.now)
        self.pending += [(self.random.randint(0, MAX_DELAY), True, number) for number in orders.load]
        self.pending += [(self.random.randint(0, MAX_DELAY), False, number) for number in orders.unload]

    def advance(self, shard: ShardMirror) -> None:
        """A turn later."""
        due = [(is_load, number) for turns, is_load, number in self.pending if turns <= 0]
        self.pending = [(turns - 1, is_load, number) for turns, is_load, number in self.pending if turns > 0]
        for is_load, number in due:
            if not is_load:
                shard.adapters.discard(number)
                self.residency.unloaded(number)
                self._counts["adapter unloads"] += 1
            elif self.random.random() < 0.05:
                self.residency.failed(number)
                self._fail(number)
                self._counts["adapters refused"] += 1
            else:
                shard.adapters.add(number)
                self.residency.loaded(number)
                self._counts["adapter loads"] += 1
        assert sum(SIZES[number] for number in shard.adapters) <= BUDGET, "the shards hold too many adapters"

    def lose(self) -> None:
        """The group is gone, with all that it was told."""
        self.pending.clear()
