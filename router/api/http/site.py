"""A listening socket whose clients wait while there are no file descriptors for their connections."""

import asyncio
import logging
import socket
from ssl import SSLContext

from aiohttp import web

from penstock.system import addresses

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Connections that are accepted in one turn of the event loop; where processes share a listener it is one, so that
another that is idle gets the next."""
WAIT_SECONDS = 0.05
"""How long nothing is accepted after there was nothing to accept with."""
WARNING_SECONDS = 10.0
"""How long the log then tells nothing more of that."""
OPENING_SECONDS = 1.0
"""How long a site that ends waits for connections that it has accepted, whose handshakes may be under way."""


class Site(web.BaseSite):
    """Accepts a runner's connections, in place of the event loop's server: uvloop's cuts off whom it has no file
    descriptor for, and here they stay in the socket's queue until there is one."""

    __slots__ = ("_at_once", "_listener", "_loop", "_opening", "_retry", "_warns_at")

    def __init__(
        self, runner: web.BaseRunner, listener: socket.socket, *, backlog: int, ssl_context: SSLContext | None = None,
        is_shared: bool = False
    ) -> None:
        """Takes the listener over, which `stop` closes; other processes accept from it, too, if it `is_shared`."""
        super().__init__(runner, backlog=backlog, ssl_context=ssl_context)
        self._listener = listener
        self._at_once = 1 if is_shared else AT_ONCE
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._warns_at = 0.0

    @property
    def name(self) -> str:
        address = addresses.joined(*self._listener.getsockname()[:2])
        return f"{'https' if self._ssl_context else 'http'}://{address}"

    async def start(self) -> None:
        await super().start()
        self._listener.setblocking(False)
        self._listener.listen(self._backlog)
        self._listen()

    async def stop(self) -> None:
        """Accepts no more, and returns when the connections that were accepted are the runner's."""
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        self._listener.close()
        if self._opening:
            _, late = await asyncio.wait(self._opening, timeout=OPENING_SECONDS)
            for task in late:
                task.cancel()
        await super().stop()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(self._at_once):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue                 # the client has left before
            except OSError as error:
                self._wait(error)
                return
            task = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _wait(self, error: OSError) -> None:
        if self._loop.time() >= self._warns_at:
            log.warning("no connection can be accepted (%s): new ones wait", error.strerror)
            self._warns_at = self._loop.time() + WARNING_SECONDS
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(WAIT_SECONDS, self._listen)

    async def _open(self, connection: socket.socket) -> None:
        """Makes a connection the runner's; one whose handshake fails is closed."""
        assert self._runner.server is not None
        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(self._runner.server, connection, ssl=self._ssl_context)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):  # as those of ssl are
                raise
