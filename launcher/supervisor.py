"""Keeps a group's shards, and what uses them, running until all of them are to end."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from penstock.launcher.group import Loss
from penstock.launcher.processes import Cause
from penstock.system.arguments import USAGE_ERROR

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class NoGroup:
    """Stands for the group of a launcher that starts no shards, because its router uses others."""

    async def keep(self, end: asyncio.Future[None]) -> None:
        """Waits until `end` is done."""
        await asyncio.wait([end])


class AnyGroup(Protocol):
    """The shards that a launcher keeps running, those of one group or of several."""

    async def keep(self, end: asyncio.Future[None]) -> Loss | None:
        """Runs them until `end` is done. Returns how they were lost, if to go on is of no use."""
        ...


class Routers(Protocol):
    """The routers that use a group: the launcher's own, or others; the log says `when` they have left it."""

    when: str

    async def keep(self, stop: asyncio.Future[None]) -> Cause | None:
        """Waits until `stop` is done and the routers have left the group. Returns how one ended that can't be kept
        running."""
        ...

    async def fail(self) -> None:
        """Tells the routers that there will be no more shards."""
        ...


class Supervisor:
    """Runs a group's shards, and routers, until SIGTERM or SIGINT. It must be made in the event loop.

    None ends when another dies, for the shards keep the weights and the router keeps the requests: what died is
    started again.
    """

    def __init__(self, group: "AnyGroup", routers: Routers) -> None:
        self._group = group
        self._routers = routers
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
            log.info("%s: ending, once %s", name, self._routers.when)
            self._stop.set_result(None)
        elif task:
            log.warning("%s again: ending at once", name)
            task.cancel()

    async def _run(self) -> int:
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with (background(self._group.keep(drained)) as group,
                    background(self._routers.keep(self._stop)) as routers):
            await asyncio.wait([group, routers], return_when=asyncio.FIRST_COMPLETED)
            if group.done() and (loss := group.result()) is not None:
                await self._routers.fail()
                return give_up(loss.causes, loss.is_refusal)
            if (cause := routers.result()) is not None:
                return give_up([cause], cause.process is not None and cause.process.status == USAGE_ERROR)
            drained.set_result(None)
            loss = await group
            return 0 if loss is None else give_up(loss.causes, loss.is_refusal)


def give_up(causes: Sequence[Cause], is_refusal: bool) -> int:
    """Logs why all processes end; returns the exit code.

    A refusal is one sentence, which the process has just written. The last lines before a crash may be far above, and
    among those of other processes, so they are repeated.
    """
    for cause in causes:
        last_lines = "".join(f"\n    {line}" for line in cause.last_lines)
        log.error("%s, so all processes end%s", cause,
                  "" if is_refusal or not cause.process else f". Its last lines:{last_lines}")
    return 1


@asynccontextmanager
async def background(work: Coroutine[None, None, _T]) -> AsyncIterator[asyncio.Task[_T]]:
    """Runs a task while the block runs, and cancels it at the end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
