"""The router's side of what binds it to the launcher."""

import asyncio
import logging

from penstock.router.engine.any_engine import AnyEngine
from penstock.router.notices import Notice, receive

log = logging.getLogger(__name__)


class LauncherLink:
    """Follows the launcher: what it tells of the shards, and that it is there. Without it, and where it has given the
    shards up, `stop` is set.

    Shards outlive a launcher that was killed until the router has ended, so what runs can be finished; but nobody would
    start them again.
    """

    def __init__(self, notices_fd: int, stop: asyncio.Event) -> None:
        self._stop = stop
        self._engine: AnyEngine | None = None
        self.is_lost = False
        """Whether the launcher is gone."""
        receive(notices_fd, self._take, self._lose)

    def tell(self, engine: AnyEngine) -> None:
        """Hands the launcher's notices from now on to this engine."""
        self._engine = engine

    def _take(self, notice: Notice) -> None:
        if notice is Notice.LOADING:
            if self._engine is not None:
                self._engine.keep_waiting()
            return
        if self._engine is not None:
            log.error("the shards will not be started again: all requests fail")
            self._engine.give_up()
        self._stop.set()

    def _lose(self) -> None:
        self.is_lost = True
        log.error("the launcher is gone: requests that run are finished, new ones are not taken")
        if self._engine is not None:
            self._engine.keep_waiting(0.0)
        self._stop.set()
