"""The router's side of what binds it to the launcher."""

import asyncio
import logging
import os

from penstock.router.engine.engine import Engine
from penstock.router.notices import Notice, receive

log = logging.getLogger(__name__)

PARENT_POLL_SECONDS = 0.5


class LauncherLink:
    """Follows the launcher: what it tells of the shards, and that it is there. Without it, and where it has given the
    shards up, `stop` is set.

    Shards outlive a launcher that was killed until the router has ended, so what runs can be finished; but nobody would
    start them again.
    """

    def __init__(self, pid: int, notices_fd: int, stop: asyncio.Event) -> None:
        self._stop = stop
        self._engine: Engine | None = None
        self._watch = asyncio.create_task(self._follow(pid))
        receive(notices_fd, self._take)

    def tell(self, engine: Engine) -> None:
        """Hands what comes from now on to this engine."""
        self._engine = engine

    def close(self) -> None:
        self._watch.cancel()

    def _take(self, notice: Notice) -> None:
        if notice is Notice.LOADING:
            if self._engine is not None:
                self._engine.keep_waiting()
            return
        if self._engine is not None:
            log.error("the shards will not be started again: all requests fail")
            self._engine.give_up()
        self._stop.set()

    async def _follow(self, pid: int) -> None:
        while os.getppid() == pid:  # noqa: ASYNC110 (nothing tells a process that its parent died)
            await asyncio.sleep(PARENT_POLL_SECONDS)
        log.error("the launcher is gone: requests that run are finished, new ones are not taken")
        if self._engine is not None:
            self._engine.stop_waiting()
        self._stop.set()
