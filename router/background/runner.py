"""The router's part that makes responses of the background: it takes those that no router makes, several at once."""

import asyncio
import logging
from contextlib import suppress

from aiohttp import web

from penstock.router.api.openai.storage import STORE
from penstock.router.background.response_run import FAREWELL_SECONDS, ResponseRun
from penstock.router.errors import RouterError
from penstock.router.generation.service import SERVICES, Services
from penstock.router.memory_ceiling import NUM_RESPONSES
from penstock.router.store.errors import StoreFailure
from penstock.router.store.leases import LeaseLost
from penstock.router.store.response_leases import ResponseLease, ResponseLeases
from penstock.router.store.store import Store

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""How often responses are looked for that came to other processes, or that other routers have left."""
FAULT_SECONDS = 60.0
"""How long a response is left alone whose making has failed by a fault of the router."""
MAX_FAULTS = 3
"""After how many faults a response has failed, since it may be that which ends the routers."""


class ResponseRunner:
    """Makes responses of a store until it is stopped. `owner` names the router, as in `ResponseLeases`."""

    def __init__(self, services: Services, store: Store, owner: str) -> None:
        self._services = services
        self._store = store
        self._leases = ResponseLeases(store.database, owner)
        self._runs: dict[str, ResponseRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Takes responses, and makes them, until it is cancelled; then it leaves them to others."""
        changed = self._store.responses.changed
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
                    log.exception("responses can't be looked for now")
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await changed.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _look(self) -> None:
        while len(self._runs) < NUM_RESPONSES and (lease := await self._leases.claim(self._runs.keys())) is not None:
            self._runs[lease.response.id] = ResponseRun(self._services, self._store, lease)
            task = asyncio.create_task(self._work(lease), name="a response")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, lease: ResponseLease) -> None:
        id = lease.response.id
        try:
            await self._make(lease, self._runs[id])
        except LeaseLost:
            log.info("the response %s is made elsewhere, or not any more", id)
        except Exception:  # amid a fault
            log.exception("the response %s can't be left to others now", id)
            await asyncio.sleep(FAULT_SECONDS)  # for it is free to be taken by this router
        except asyncio.CancelledError:
            with suppress(StoreFailure, TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await lease.release()
            raise
        finally:
            del self._runs[id]
            self._store.responses.changed.set()

    async def _make(self, lease: ResponseLease, run: ResponseRun) -> None:
        """Makes a response. After a fault others come first. Raises LeaseLost or StoreFailure."""
        if lease.num_faults >= MAX_FAULTS:
            log.error("the response %s is given up after %s faults", lease.response.id, lease.num_faults)
            await run.give_up(RouterError("The server has failed at this response again and again, by a fault of its "
                                          "own that its log tells."))
            return
        try:
            await run.run()
        except LeaseLost:
            raise
        except Exception:
            log.exception("the response %s can't be made now", lease.response.id)
            await lease.postpone(FAULT_SECONDS)


def add_response_runner(app: web.Application, owner: str) -> None:
    """Makes the responses of the app's store from its start until it begins to end."""
    tasks: list[asyncio.Task[None]] = []

    async def start(app: web.Application) -> None:
        runner = ResponseRunner(app[SERVICES], app[STORE], owner)
        tasks.append(asyncio.create_task(runner.run(), name="responses"))

    async def stop(_: web.Application) -> None:
        for task in tasks:
            task.cancel()
            await asyncio.wait([task])

    app.on_startup.append(start)
    app.on_shutdown.append(stop)
