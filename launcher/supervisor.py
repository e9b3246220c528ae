"""Keeps a group's shards and the processes of its router running until all of them are to end."""

import asyncio
import logging
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from penstock.launcher.group import GroupKeeper
from penstock.launcher.processes import BACKOFF_SECONDS, Cause, Process, Program, started
from penstock.launcher.progress_watch import followed
from penstock.router.notices import Notice, NoticePipe
from penstock.system.arguments import USAGE_ERROR, InvalidArgument

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class NoGroup:
    """Stands for the group of a launcher that starts no shards, because its router uses others."""

    async def keep(self, end: asyncio.Future[None]) -> None:
        """Waits until `end` is done."""
        await asyncio.wait([end])


DRAIN_SLACK_SECONDS = 1.0
"""The time beyond the drain timeout after which the router is killed: it ends overdue requests itself, and tells their
clients."""
LAST_WORDS_SECONDS = 5.0
"""How long the router may take to tell its clients that their requests fail."""


class UntilSignal(ABC):
    """Runs processes until SIGTERM or SIGINT; the log says `when` they end. It must be made in the event loop."""

    def __init__(self, when: str) -> None:
        self._when = when
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
            log.info("%s: ending, once %s", name, self._when)
            self._stop.set_result(None)
        elif task:
            log.warning("%s again: ending at once", name)
            task.cancel()

    @abstractmethod
    async def _run(self) -> int:
        """Runs the processes until `_stop` is done and they have ended in order; returns the exit code."""


class Supervisor(UntilSignal):
    """Runs a group's shards, and a router of one or several processes, which drain for `drain_timeout` seconds.

    None ends when another dies, for the shards keep the weights and the router keeps the requests: what died is
    started again. So is a process of the router that gives no sign of life for `startup_timeout` seconds while it
    starts, and for `silence_limit` later. Meanwhile `listener`, which they inherit, lets clients wait; it is closed
    when no more of them are to come.
    """

    def __init__(
        self, group: GroupKeeper | NoGroup, routers: Sequence[Program], listener: socket.socket,
        notices: Sequence[NoticePipe], *, drain_timeout: float, startup_timeout: float, silence_limit: float,
        can_reload: bool,
    ) -> None:
        super().__init__("running requests have finished")
        self._group = group
        self._routers = routers
        self._listener = listener
        self._notices = notices
        self._drain_timeout = drain_timeout
        self._startup_timeout = startup_timeout
        self._silence_limit = silence_limit
        self._can_reload = can_reload
        self._is_given_up = False
        self._running: dict[str, Process] = {}

    async def run(self) -> int:
        if self._can_reload:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_reload)
        return await super().run()

    def _on_signal(self, name: str, task: asyncio.Task[int] | None) -> None:
        self._listener.close()
        super()._on_signal(name, task)

    def _on_reload(self) -> None:
        """Passes SIGHUP on. A router that has given no sign yet does not know it, and will read the file later."""
        for router in self._running.values():
            router.notify(signal.SIGHUP)

    async def _run(self) -> int:
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(background(self._group.keep(drained)))
            routers = [await stack.enter_async_context(background(self._keep(each))) for each in self._routers]
            await asyncio.wait([group, *routers], return_when=asyncio.FIRST_COMPLETED)
            if group.done() and (loss := group.result()) is not None:
                await self._let_requests_fail(routers)
                return give_up(loss.causes, loss.is_refusal)
            if not self._stop.done():
                cause = next(router.result() for router in routers if router.done())
                return give_up([cause], cause.process is not None and cause.process.status == USAGE_ERROR)
            await asyncio.wait(routers)
            drained.set_result(None)
            await group
            return 0

    async def _let_requests_fail(self, routers: Sequence[asyncio.Task[Cause]]) -> None:
        """Has the router tell its clients that there will be no more shards, and end."""
        self._is_given_up = True
        self._listener.close()
        for notices in self._notices:
            notices.send(Notice.GIVEN_UP)
        await asyncio.wait(routers, timeout=LAST_WORDS_SECONDS)

    async def _keep(self, program: Program) -> Cause:
        """Runs a process of the router until it has drained or to start it again is of no use; returns how it ended
        last.

        One that has served may refuse to start again only because a file is away for a while.
        """
        num_useless, has_served = 0, False
        while True:
            cause = await self._run_once(program)
            is_useful = cause.process is not None and cause.process.is_ready
            has_served |= is_useful
            num_useless = 0 if is_useful else num_useless + 1
            is_refusal = cause.process is not None and cause.process.status == USAGE_ERROR and not has_served
            if self._is_to_end or is_refusal or num_useless > len(BACKOFF_SECONDS):
                return cause
            log.warning("%s, starting it again", cause)
            await asyncio.wait([self._stop], timeout=BACKOFF_SECONDS[max(0, num_useless - 1)])
            if self._is_to_end:
                return cause

    @property
    def _is_to_end(self) -> bool:
        """Whether no router is to be started any more."""
        return self._stop.done() or self._is_given_up

    async def _run_once(self, program: Program) -> Cause:
        """Runs a process of the router once, until it dies, is silent for too long, or ends after the signal to stop;
        returns which of these it was, or why it could not be started."""
        async with AsyncExitStack() as stack:
            try:
                router = await stack.enter_async_context(started(program))
            except (OSError, InvalidArgument) as error:
                return Cause.of_failed_start(program.name, error)
            self._running[program.name] = router
            watch = await stack.enter_async_context(followed(router, self._startup_timeout, self._silence_limit))
            await asyncio.wait([router.ended, self._stop, watch.is_over], return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                router.send_signal(signal.SIGTERM)
                await asyncio.wait([router.ended], timeout=self._drain_timeout + DRAIN_SLACK_SECONDS)
                if router.status is None:
                    log.warning("%s had requests left after %g s", router.name, self._drain_timeout)
        return Cause(router.name, watch.finding or router.ending, router)


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
