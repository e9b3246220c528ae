"""Keeps the processes of one group together: starts them, restarts the router, ends them all."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from router.processes import Process, Program, started

log = logging.getLogger(__name__)

QUICK_DEATH_SECONDS = 5.0
BACKOFF_SECONDS = (0.0, 0.1, 0.5, 2.0)
"""Waits before the restarts after quick deaths in a row: the first is at once, and there is none after one more."""
USAGE_ERROR = 2
"""Exit code of a router that would end in the same way each time: its settings can't be met."""
CAUSE_SECONDS = 0.5
"""A router may give up because of a dead shard, an instant before that is known to be dead."""
SHARD_SECONDS = 10.0
"""How long the shards may take to end when asked to."""
DRAIN_SLACK_SECONDS = 1.0
"""The router ends overdue requests itself, and tells their clients; it is killed only if it doesn't."""


class Supervisor:
    """Runs the programs of one group: its shards, and a router that drains for `drain_timeout` seconds.

    A router that died is started again, for the shards keep the weights; the death of a shard ends all. To be made
    in the event loop.
    """

    def __init__(self, shards: Sequence[Program], router: Program, drain_timeout: float) -> None:
        self._shards = shards
        self._router = router
        self._drain_timeout = drain_timeout
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Until SIGTERM, SIGINT or a death that can't be mended; then no process is left. Returns the exit code.

        0 after SIGTERM or SIGINT, 130 after a second SIGINT, 1 after a death.
        """
        task = asyncio.create_task(self._run())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_signal, "SIGTERM", None)
        loop.add_signal_handler(signal.SIGINT, self._on_signal, "SIGINT", task)
        try:
            return await task
        except asyncio.CancelledError:
            return 128 + signal.SIGINT

    def _on_signal(self, name: str, task: asyncio.Task[int] | None) -> None:
        if not self._stop.done():
            log.info("%s: ending, once running requests have finished", name)
            self._stop.set_result(None)
        elif task:
            log.warning("%s again: ending at once", name)
            task.cancel()

    async def _run(self) -> int:
        async with AsyncExitStack() as stack:
            shards = [await stack.enter_async_context(started(program)) for program in self._shards]
            router = await stack.enter_async_context(_background(self._keep_router()))
            ends = [shard.ended for shard in shards]
            await asyncio.wait([router, *ends], return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                await router
                for shard in shards:
                    shard.terminate()
                await asyncio.wait(ends, timeout=SHARD_SECONDS)
                return 0
            await asyncio.wait(ends, timeout=CAUSE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for process in [shard for shard in shards if shard.ended.done()] or [router.result()]:
                log.error("%s %s, so all processes end. Its last lines:\n%s", process.name, process.ending,
                          "\n".join(f"    {line}" for line in process.last_lines))
            return 1

    async def _keep_router(self) -> Process:
        """Run the router until it has drained or it is of no use to start it again; returns its last process."""
        num_quick_deaths = 0
        while True:
            start = time.monotonic()
            router = await self._run_router()
            is_quick = time.monotonic() - start < QUICK_DEATH_SECONDS
            num_quick_deaths = num_quick_deaths + 1 if is_quick else 0
            if self._stop.done() or router.status == USAGE_ERROR or num_quick_deaths > len(BACKOFF_SECONDS):
                return router
            log.warning("%s %s, starting it again", router.name, router.ending)
            await asyncio.wait([self._stop], timeout=BACKOFF_SECONDS[max(0, num_quick_deaths - 1)])
            if self._stop.done():
                return router

    async def _run_router(self) -> Process:
        """One run, to its death or to its end after the signal to stop."""
        async with started(self._router) as router:
            await asyncio.wait([router.ended, self._stop], return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                router.terminate()
                await asyncio.wait([router.ended], timeout=self._drain_timeout + DRAIN_SLACK_SECONDS)
                if router.status is None:
                    log.warning("%s had requests left after %g s", router.name, self._drain_timeout)
            return router


@asynccontextmanager
async def _background(work: Coroutine[None, None, Process]) -> AsyncIterator[asyncio.Task[Process]]:
    """A task that is over when the block is left."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
