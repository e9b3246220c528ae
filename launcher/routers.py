"""The routers that use a group: the launcher's own processes, or those elsewhere."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

from penstock.launcher.group import GroupKeeper
from penstock.launcher.processes import BACKOFF_SECONDS, Cause, Process, Program, started
from penstock.launcher.progress_watch import followed
from penstock.launcher.supervisor import background
from penstock.router.notices import Notice, NoticePipe
from penstock.system.arguments import USAGE_ERROR, InvalidArgument

log = logging.getLogger(__name__)

DRAIN_SLACK_SECONDS = 1.0
"""The time beyond the drain timeout after which the router is killed: it ends overdue requests itself, and tells their
clients."""
LAST_WORDS_SECONDS = 5.0
"""How long the router may take to tell its clients that their requests fail."""


class OwnRouters:
    """Keeps the processes of a router running, one or several, which drain for `drain_timeout` seconds.

    One that gives no sign of life for `startup_timeout` seconds while it starts, and for `silence_limit` later, is
    started again. Meanwhile `listener`, which they inherit, lets clients wait; it is closed when no more of them are to
    come.
    """

    when = "running requests have finished"

    def __init__(
        self, programs: Sequence[Program], listener: socket.socket, notices: Sequence[NoticePipe], *,
        drain_timeout: float, startup_timeout: float, silence_limit: float, can_reload: bool,
    ) -> None:
        self._programs = programs
        self._listener = listener
        self._notices = notices
        self._drain_timeout = drain_timeout
        self._startup_timeout = startup_timeout
        self._silence_limit = silence_limit
        self._can_reload = can_reload
        self._is_given_up = False
        self._tasks: list[asyncio.Task[Cause]] = []
        self._running: dict[str, Process] = {}

    async def keep(self, stop: asyncio.Future[None]) -> Cause | None:
        """Runs the processes until `stop` is done and they have drained, or all have told their clients that they fail.
        Returns how one ended that is of no use to start again."""
        self._stop = stop
        stop.add_done_callback(lambda _: self._listener.close())
        if self._can_reload:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_reload)
        async with AsyncExitStack() as stack:
            self._tasks = [await stack.enter_async_context(background(self._keep(each))) for each in self._programs]
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            if not self._is_to_end:
                return next(task.result() for task in self._tasks if task.done())
            await asyncio.wait(self._tasks)
            return None

    async def fail(self) -> None:
        """Has the router tell its clients that there will be no more shards, and end."""
        self._is_given_up = True
        self._listener.close()
        for notices in self._notices:
            notices.send(Notice.GIVEN_UP)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WORDS_SECONDS)

    def _on_reload(self) -> None:
        """Passes SIGHUP on. A router that has given no sign yet does not know it, and will read the file later."""
        for router in self._running.values():
            router.notify(signal.SIGHUP)

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


class OtherRouters:
    """The routers elsewhere, which use a group that has none of its own. Before its shards end, `drain` has them leave
    it."""

    when = "routers have moved what runs to other groups"

    def __init__(self, group: GroupKeeper, drain: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._group = group
        self._drain = drain

    async def keep(self, stop: asyncio.Future[None]) -> None:
        """Waits until `stop` is done and the routers have left the group, if it is one that they can use."""
        await asyncio.wait([stop])
        if self._group.is_ready:
            await self._drain()

    async def fail(self) -> None:
        """Does nothing: the routers see for themselves that the group is gone."""
