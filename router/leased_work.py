"""Work of the store that routers share: each takes what no other one works on, several at once, and leaves it to others
when it ends."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Protocol

from aiohttp import web

from penstock.router.store.errors import StoreFailure
from penstock.router.store.leases import Lease, LeaseLost

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""How often work is looked for that other routers have taken, or have left."""
FAULT_SECONDS = 60.0
"""How long work is left alone that has failed by a fault of the router."""
MAX_FAULTS = 3
"""After how many of them it has failed for good."""
FAREWELL_SECONDS = 2.0
"""How long a router that ends takes to store what it has, and as long again to leave the work to others."""


class Work(Protocol):
    """The work on what is leased."""

    def wake(self) -> None:
        """Tells that it may have been cancelled."""

    async def run(self) -> None:
        """Does all that is left to do. Raises LeaseLost."""

    async def give_up(self) -> None:
        """Ends it as failed by a fault of the router. Raises LeaseLost."""


class Worker(ABC):
    """Does the work of one kind until it is stopped. `changed` is set when a client has asked for some, or has
    cancelled it."""

    kind: ClassVar[str]
    """The noun for what is worked on, as the log has it."""
    max_deaths: ClassVar[int]
    """After how many ends of routers amid it, and faults, it has failed untried: it may be that which ends them."""

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._works: dict[str, Work] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def claim(self, held: Collection[str]) -> tuple[Lease, Work] | None:
        """Takes what nobody works on, beside those `held` already. Returns its lease and the work on it; None if there
        is none, or these are enough."""

    async def run(self) -> None:
        """Takes work, and does it, until it is cancelled; then it leaves it to others."""
        try:
            while True:
                self._changed.clear()
                for work in self._works.values():
                    work.wake()
                try:
                    await self.look()
                except StoreFailure:  # which the database has told
                    pass
                except Exception:
                    log.exception("no %s can be looked for now", self.kind)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._changed.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def look(self) -> None:
        """Takes all work that there is."""
        while (found := await self.claim(self._works.keys())) is not None:
            lease, work = found
            self._works[lease.id] = work
            task = asyncio.create_task(self._work(lease, work), name=f"a {self.kind}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, lease: Lease, work: Work) -> None:
        try:
            await self._end(lease, work)
        except LeaseLost:
            log.info("the %s %s goes on elsewhere, or not any more", self.kind, lease.id)
        except Exception:  # amid a fault
            log.exception("the %s %s can't be left to others now", self.kind, lease.id)
            await asyncio.sleep(FAULT_SECONDS)  # for it is free to be taken by this router
        except asyncio.CancelledError:
            async with farewell():
                await lease.release()
            raise
        finally:
            del self._works[lease.id]
            self._changed.set()

    async def _end(self, lease: Lease, work: Work) -> None:
        """Works until all is done. After a fault others come first, of which there may be more than are worked on at
        once. Raises LeaseLost or StoreFailure."""
        try:
            if lease.num_faults < self.max_deaths:
                await work.run()
            else:
                log.error("the %s %s is given up after %s faults and ends of routers amid it", self.kind, lease.id,
                          lease.num_faults)
                await work.give_up()
        except LeaseLost:
            raise
        except Exception:
            log.exception("the %s %s can't go on now", self.kind, lease.id)
            if await lease.postpone(FAULT_SECONDS, MAX_FAULTS):
                return
            await work.give_up()
        log.info("the %s %s has ended", self.kind, lease.id)


@asynccontextmanager
async def farewell() -> AsyncIterator[None]:
    """Runs the block of a router that ends, which may take FAREWELL_SECONDS, and may fail as stores do."""
    with suppress(StoreFailure, LeaseLost, TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS):
            yield


def run_amid(app: web.Application, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Has `run` run from the app's start until the app begins to end, as a task of this name."""
    tasks: list[asyncio.Task[None]] = []

    async def start(_: web.Application) -> None:
        tasks.append(asyncio.create_task(run(), name=name))

    async def stop(_: web.Application) -> None:
        for task in tasks:
            task.cancel()
            await asyncio.wait([task])

    app.on_startup.append(start)
    app.on_shutdown.append(stop)
