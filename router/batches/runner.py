"""The router's part that answers batches: it takes those on which no router works, several at once."""

import asyncio
import hashlib
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from penstock.router.api.openai.storage import STORE
from penstock.router.batches.batch_run import FAREWELL_SECONDS, BatchRun
from penstock.router.batches.window import Window
from penstock.router.generation.service import SERVICES, Services
from penstock.router.memory_ceiling import WINDOW_BYTES
from penstock.router.store.errors import StoreFailure
from penstock.router.store.leases import Lease, LeaseLost, Leases
from penstock.router.store.store import Store

log = logging.getLogger(__name__)

MAX_BATCHES = 8
"""How many batches are worked on at once, so that a short one need not wait for a long one."""
POLL_SECONDS = 2.0
"""How often batches are looked for that other routers have taken, or have left."""
SWEEP_SECONDS = 60.0
"""How often files and responses are looked for that have expired, and lines of batches that have ended."""
FAULT_SECONDS = 60.0
"""How long a batch is left alone whose work has failed by a fault of the router."""
MAX_FAULTS = 3
"""After how many of them, without an answer between them, the batch has failed."""
MAX_DEATHS = 2 * MAX_FAULTS
"""After how many of them it has failed untried, since it may be that which ends the routers."""


class Runner:
    """Works on batches of a store until it is stopped. `owner` names the router, as in `Leases`."""

    def __init__(self, services: Services, store: Store, owner: str) -> None:
        self._services = services
        self._store = store
        self._leases = Leases(store.database, owner)
        self._metrics = services.first.metrics.batches
        self._window = Window(lambda: services.first.engine.num_slots, WINDOW_BYTES)
        self._runs: dict[str, BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Takes batches, and works on them, until it is cancelled; then it leaves them to others."""
        changed = self._store.batches.changed
        self._tasks.add(asyncio.create_task(self._sweep(), name="sweeping"))
        try:
            while True:
                changed.clear()
                for run in self._runs.values():
                    run.wake()
                try:
                    await self._look()
                except StoreFailure:  # which the database has told
                    pass
                except Exception:
                    log.exception("batches can't be looked for now")
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await changed.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _look(self) -> None:
        while (lease := await self._claim()) is not None:
            self._runs[lease.id] = BatchRun(self._services, self._store, lease, self._window, self._metrics)
            task = asyncio.create_task(self._work(lease), name="a batch")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._metrics.count(await self._store.batches.count())

    async def _sweep(self) -> None:
        """Deletes files and responses that have expired and lines of batches that have ended, which may take long."""
        while True:
            try:
                await self._store.files.sweep()
                await self._store.batches.sweep()
                await self._store.responses.sweep()
            except StoreFailure:  # which the database has told
                pass
            except Exception:
                log.exception("files, lines and responses can't be swept away now")
            await asyncio.sleep(SWEEP_SECONDS)

    async def _claim(self) -> Lease | None:
        """Takes a batch; beside as many as are worked on at once, one that ends without a line being asked."""
        if len(self._runs) < 2 * MAX_BATCHES:
            return await self._leases.claim(self._runs.keys(), is_to_end=len(self._runs) >= MAX_BATCHES)
        return None

    async def _work(self, lease: Lease) -> None:
        try:
            await self._end(lease, self._runs[lease.id])
        except LeaseLost:
            log.info("the batch %s goes on elsewhere, or otherwise", lease.id)
        except Exception:  # amid a fault
            log.exception("the batch %s can't be left to others now", lease.id)
            await asyncio.sleep(FAULT_SECONDS)  # for it is free to be taken by this router
        except asyncio.CancelledError:
            with suppress(StoreFailure, TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await lease.release()
            raise
        finally:
            del self._runs[lease.id]
            self._store.batches.changed.set()

    async def _end(self, lease: Lease, run: BatchRun) -> None:
        """Works on a batch until it has ended. After a fault others come first, of which there may be more than are
        worked on at once. Raises LeaseLost or StoreFailure."""
        try:
            if lease.num_faults < MAX_DEATHS:
                await run.run()
            else:
                log.error("the batch %s is given up: routers have ended amid it %s times", lease.id, lease.num_faults)
                await run.give_up()
        except LeaseLost:
            raise
        except Exception:
            log.exception("the batch %s can't go on now", lease.id)
            if await lease.postpone(FAULT_SECONDS, MAX_FAULTS):
                return
            await run.give_up()
        log.info("the batch %s has ended", lease.id)


def add_runner(app: web.Application, owner: str) -> None:
    """Answers the batches of the app's store from its start until it begins to end."""
    tasks: list[asyncio.Task[None]] = []

    async def start(app: web.Application) -> None:
        tasks.append(asyncio.create_task(Runner(app[SERVICES], app[STORE], owner).run(), name="batches"))

    async def stop(_: web.Application) -> None:
        for task in tasks:
            task.cancel()
            await asyncio.wait([task])

    app.on_startup.append(start)
    app.on_shutdown.append(stop)


def owner_name(launcher: int) -> str:
    """Returns the name of the router that the process `launcher` runs. It is the same for the next process of that
    router, and for no other one, on this machine or elsewhere."""
    stat = Path(f"/proc/{launcher}/stat").read_text()
    started_at = stat.rpartition(")")[2].split()[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(f"{boot} {socket.gethostname()} {launcher} {started_at}".encode()).hexdigest()[:16]


def owner_of_this_process() -> str:
    """Returns the name of the router to which this process belongs."""
    return owner_name(os.getppid())
