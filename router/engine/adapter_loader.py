"""Loads and unloads adapters on the shards, beside the steps, as the scheduler orders."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from penstock.checkpoints.adapter_files import read_config
from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.errors import GenerationError, RouterError
from penstock.router.fleet.errors import AdapterRefusedError, FleetError
from penstock.router.fleet.fleet import Fleet
from penstock.router.metrics.adapters import AdapterMetrics
from penstock.router.scheduling.residency import AdapterState
from penstock.router.scheduling.scheduler import Scheduler
from penstock.system.fields import FileError

log = logging.getLogger(__name__)

MAX_LOSSES_BESIDE = 2
"""How often in a row the group may be lost while an adapter is loaded beside steps, before it is loaded alone."""
MAX_LOSSES = 4
"""How often in a row in all, before the requests that wait for it fail: at least the last two times it was alone."""
MOST_UNUSED = 1024
"""How many adapters are known, at least, before those that nobody uses are forgotten."""


class AdapterLoader:
    """Runs each load and each unload as a task. `fail` ends the requests that wait for the adapter of a number, `wake`
    has the engine plan again, `in_use` returns the numbers of the adapters of all requests.

    An adapter that a shard refuses harms those who wait for it alone. One with which the group is lost again and again
    is loaded while nothing else runs, so that no other can be blamed, and is given up if the group is lost even so.
    """

    def __init__(
        self, fleet: Fleet, scheduler: Scheduler, registry: Registry, metrics: AdapterMetrics, group: str,
        fail: Callable[[int, RouterError], None], wake: Callable[[], None], in_use: Callable[[], Collection[int]],
    ) -> None:
        self._fleet = fleet
        self._scheduler = scheduler
        self._residency = scheduler.adapters
        self.registry = registry
        self._metrics = metrics
        self._group = group
        self._fail = fail
        self._wake = wake
        self._in_use = in_use
        self._adapters: dict[int, Adapter] = {}
        """Those that are in use, on the shards or on the way, and others until they are twice as many."""
        self._most_known = MOST_UNUSED
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: set[int] = set()
        self._suspects: list[int] = []
        """Those that are to be loaded alone, one after the other."""
        self._leftovers: set[int] = set()
        """Those that are unloaded for fear that they were left behind by a loss."""
        self._num_losses: Counter[int] = Counter()
        """How often in a row the group was lost while an adapter was loaded."""
        self._loss: FleetError | None = None

    def use(self, adapter: Adapter) -> None:
        """Takes the adapter of a request in. Raises GenerationError if it was given up."""
        if self._num_losses[adapter.number] >= MAX_LOSSES:
            raise self._killed(adapter)
        if len(self._adapters) >= self._most_known:
            self._forget_unused()
        self._adapters[adapter.number] = adapter
        self._residency.know(adapter.number, adapter.num_bytes)

    def _forget_unused(self) -> None:
        kept = {*self._in_use(), *self._residency.residents, *self._leftovers}
        self._adapters = {number: adapter for number, adapter in self._adapters.items() if number in kept}
        self._residency.know_only(self._adapters)
        self._num_losses = Counter({number: count for number, count in self._num_losses.items()
                                    if number in kept or count >= MAX_LOSSES})
        self._most_known = 2 * len(self._adapters) + MOST_UNUSED

    def drop(self, adapter: Adapter | None) -> None:
        """Has an adapter that was removed, if its files were ever read, unloaded once no request needs it. If it comes
        back it gets a new chance."""
        if adapter is not None:
            self._residency.drop(adapter.number)
            self._num_losses.pop(adapter.number, None)
            self._wake()
        self.note()

    @property
    def needs_quiet(self) -> bool:
        """Whether nothing may be planned, for an adapter is to be loaded alone."""
        return bool(self._suspects)

    def begin(self, is_quiet: bool) -> None:
        """Begins the loads that are due. With `is_quiet` no step is in flight.

        Raises FleetError if the group was lost in the meantime.
        """
        if self._loss is not None:
            raise self._loss
        if self._adapters and not self._suspects:
            orders = self._scheduler.order_adapters(time.monotonic())
            for number in orders.unload:
                self._start(self._unload(number))
            for number in orders.load:
                if self._num_losses[number] >= MAX_LOSSES_BESIDE:
                    self._suspects.append(number)
                else:
                    self._start(self._load(number))
        if self._suspects and is_quiet and not self._tasks:
            self._start(self._load(self._suspects[0]))

    def lose(self) -> None:
        """Ends all that is under way when the group is lost, after the scheduler has forgotten everything."""
        self.close()
        self._loss = None
        self._suspects.clear()
        self._leftovers = {
            number for number in self._adapters if self._residency.state(number) is not AdapterState.KNOWN}
        loading = [*self._loading]
        self._loading.clear()
        for number in loading:
            self._num_losses[number] += 1
            if self._num_losses[number] >= MAX_LOSSES:
                self._fail(number, self._killed(self._adapters[number]))
                self.registry.read_again(self._adapters[number])

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def note(self) -> None:
        """Tells the metrics where the adapters are."""
        self._metrics.count(self._group, len(self.registry), self._residency.counts())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        """Notes that a task has ended, unless the group was lost before."""
        error = None if task.cancelled() else task.exception()
        if task not in self._tasks:
            return
        self._tasks.remove(task)
        self._wake()
        if error is not None:
            self._loss = error if isinstance(error, FleetError) else FleetError(f"an adapter's load failed: {error!r}")

    async def _load(self, number: int) -> None:
        adapter, began_at = self._adapters[number], time.monotonic()
        self._loading.add(number)
        try:
            # If the disk does not answer, the shards are not asked, whose one thread for this would hang.
            await self.registry.readers.read(adapter.path, lambda: read_config(adapter.path))
            num_bytes = await self._fleet.load_adapter(number, str(adapter.path), adapter.digest)
        except (AdapterRefusedError, FileError) as error:
            log.error("the adapter %r can't be loaded: %s", adapter.name, error)
            self._residency.failed(number)
            self.registry.read_again(adapter)
            self._fail(number, GenerationError(f"adapter `{adapter.name}`: {error}"))
        else:
            took = time.monotonic() - began_at
            log.info("the adapter %r is loaded: %d bytes on a shard, in %.2f s", adapter.name, num_bytes, took)
            self._residency.loaded(number)
            self._metrics.loaded(took)
            del self._num_losses[number]
        self._loading.discard(number)
        if number in self._suspects:
            self._suspects.remove(number)

    async def _unload(self, number: int) -> None:
        await self._fleet.unload_adapter(number)
        self._residency.unloaded(number)
        if number in self._leftovers:
            self._leftovers.discard(number)
        else:
            self._metrics.evicted()

    @staticmethod
    def _killed(adapter: Adapter) -> GenerationError:
        return GenerationError(f"the shards failed {MAX_LOSSES} times in a row while they loaded the adapter "
                           f"`{adapter.name}`")
