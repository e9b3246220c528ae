"""The router's part that answers batches: it takes those on which no router works, several at once."""

import hashlib
import os
import socket
from collections.abc import Collection
from pathlib import Path

from aiohttp import web

from penstock.router.api.openai.storage import STORE
from penstock.router.batches.batch_run import BatchRun
from penstock.router.batches.window import Window
from penstock.router.generation.services import SERVICES, Services
from penstock.router.leased_work import MAX_FAULTS, Worker, run_amid
from penstock.router.memory_ceiling import WINDOW_BYTES
from penstock.router.store.batch_leases import BatchLease
from penstock.router.store.store import Store

MAX_BATCHES = 8
"""How many batches are worked on at once, so that a short one need not wait for a long one."""


class BatchRunner(Worker):
    """Works on batches of a store. `owner` names the router, as in `Lease.claim`."""

    kind = "batch"
    max_deaths = 2 * MAX_FAULTS

    def __init__(self, services: Services, store: Store, owner: str) -> None:
        super().__init__(store.batches.changed)
        self._services = services
        self._store = store
        self._owner = owner
        self._metrics = services.first.metrics.batches
        self._window = Window(lambda: sum(service.engine.num_slots for service in services), WINDOW_BYTES)

    async def claim(self, held: Collection[str]) -> tuple[BatchLease, BatchRun] | None:
        """Takes a batch; beside as many as are worked on at once, one that ends without a line being asked."""
        if len(held) >= 2 * MAX_BATCHES:
            return None
        claim = BatchLease.claim if len(held) < MAX_BATCHES else BatchLease.claim_ending
        lease = await claim(self._store.database, self._owner, held)
        if lease is None:
            return None
        return lease, BatchRun(self._services, self._store, lease, self._window, self._metrics)

    async def look(self) -> None:
        """Takes all batches that there are, and counts those of each state."""
        await super().look()
        self._metrics.count(await self._store.batches.count())


def add_runner(app: web.Application, owner: str) -> None:
    """Answers the batches of the app's store from its start until it begins to end, and deletes what has expired."""
    run_amid(app, "sweeping", lambda: app[STORE].keep_swept())
    run_amid(app, "batches", lambda: BatchRunner(app[SERVICES], app[STORE], owner).run())


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
