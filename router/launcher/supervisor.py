"""Keeps a group's shards and its router running until all of them are to end."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from penstock.router.config import USAGE_ERROR
from penstock.router.launcher.group import Group
from penstock.router.launcher.processes import BACKOFF_SECONDS, Process, Program, started

log = logging.getLogger(__name__)

_T = TypeVar("_T")
QUICK_DEATH_SECONDS = 5.0
DRAIN_SLACK_SECONDS = 1.0
"""The time beyond the drain timeout after which the router is killed: it ends overdue requests itself, and tells their
clients."""


class Supervisor:
    """Runs a group's shards, and a router that drains for `drain_timeout` seconds. It must be made in the event loop.

    Neither ends when the other dies, for the shards keep the weights and the router keeps the requests: what died is
    started again. A router that `can_reload` its settings is handed SIGHUP.
    """

    def __init__(self, group: Group, router: Program, drain_timeout: float, can_reload: bool = False) -> None:
        self._group = group
        self._router = router
        self._drain_timeout = drain_timeout
        self._can_reload = can_reload
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Runs until SIGTERM, SIGINT or a death that can't be mended; then no process is left.

        Returns the exit code: 0 after SIGTERM or SIGINT, 130 after a second SIGINT, 1 after a death.
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
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with _background(self._group.keep(drained)) as group, _background(self._keep_router()) as router:
            await asyncio.wait([group, router], return_when=asyncio.FIRST_COMPLETED)
            if group.done() and (loss := group.result()) is not None:
                return _give_up(loss.causes, loss.is_refusal)
            process = router.result()
            if not self._stop.done():
                return _give_up([(process, process.ending)], process.status == USAGE_ERROR)
            drained.set_result(None)
            await group
            return 0

    async def _keep_router(self) -> Process:
        """Runs the router until it has drained or to start it again is of no use; returns its last process."""
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
        """Runs the router once, until it dies or ends after the signal to stop."""
        async with started(self._router) as router:
            if self._can_reload:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, router.send_signal, signal.SIGHUP)
            await asyncio.wait([router.ended, self._stop], return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                router.send_signal(signal.SIGTERM)
                await asyncio.wait([router.ended], timeout=self._drain_timeout + DRAIN_SLACK_SECONDS)
                if router.status is None:
                    log.warning("%s had requests left after %g s", router.name, self._drain_timeout)
            return router


def _give_up(causes: Sequence[tuple[Process, str]], is_refusal: bool) -> int:
    """Logs why all processes end; returns the exit code.

    A refusal is one sentence, which the process has just written. The last lines before a crash may be far above, and
    among those of other processes, so they are repeated.
    """
    for process, what in causes:
        last_lines = "".join(f"\n    {line}" for line in process.last_lines)
        log.error("%s %s, so all processes end%s", process.name, what,
                  "" if is_refusal else f". Its last lines:{last_lines}")
    return 1


@asynccontextmanager
async def _background(work: Coroutine[None, None, _T]) -> AsyncIterator[asyncio.Task[_T]]:
    """Runs a task while the block runs, and cancels it at the end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
