"""A connection that answers a client which has ended its own half of it, or whose request comes as the server ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.web_protocol import RequestHandler

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ACCEPTING_TURNS = 3
"""Turns of the event loop after which a connection that was just accepted waits for its request. Before, aiohttp does
not know of it, or waits for the end of its handler without end."""
FIRST_REQUEST_SECONDS = 1.0
"""How long a server that ends waits for the first request of a connection that it has just accepted."""
HEAR_SECONDS = 0.01
PROBE_SECONDS = (0.1, 0.9, 0.0)
"""Seconds after each probe, in which a reset comes back from a client that is gone."""


class Connection(RequestHandler):
    """A client's end of file is not its leaving: `shutdown(SHUT_WR)` sends one, and waits for the answer.

    Nothing but a write tells the one from the other: a client that is gone answers it with a reset, after which the
    next write fails, and the request is cancelled. So something is written that a client skips: interim responses
    (RFC 9110, 15.2) before the answer, and what `probe` is set to while one is streamed. Clients of HTTP/1.0 know no
    interim responses; most of them are proxies, whose end of file means that their own client has left.
    """

    __slots__ = ("_is_old", "_payload", "_prober", "has_asked", "probe")

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **kwargs: Any) -> None:
        super().__init__(manager, loop=loop, **kwargs)
        self._request_factory = self._make_request
        self._payload: StreamReader | None = None
        self._is_old = False
        self._prober: asyncio.Task[None] | None = None
        self.has_asked = False
        """Whether a request has come. A client that has not yet asked may just be about to."""
        self.probe: Callable[[], Awaitable[None]] | None = None
        """Writes what the client of the response that is being streamed skips."""

    def eof_received(self) -> bool:  # type: ignore[override]
        """Returns whether the connection stays open, for whole requests wait for an answer. TLS has no half-close."""
        payloads = [payload for _, payload in self._messages]
        if self._payload is not None:
            payloads.append(self._payload)
        is_whole = bool(payloads) and all(payload.is_eof() for payload in payloads)
        if not is_whole or self.ssl_context is not None or (self._is_old and self.probe is None):
            return False
        if self._prober is None:  # uvloop tells of the end twice
            self._prober = self._loop.create_task(self._probe())
        return True

    def _make_request(self, message: Any, payload: StreamReader, *rest: Any) -> web.BaseRequest:
        self._payload = payload
        self._is_old = message.version < HttpVersion11
        self.has_asked = True
        assert self._manager is not None
        return self._manager.request_factory(message, payload, *rest)

    async def finish_response(self, *response: Any) -> tuple[web.StreamResponse, bool]:
        """Sends the response's end; the last one to a client that sends no more ends the connection."""
        try:
            return await super().finish_response(*response)
        finally:
            self._payload = None
            if self._prober is not None and not self._messages:
                self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._prober is not None:
            self._prober.cancel()
        super().connection_lost(exc)

    async def _probe(self) -> None:
        for seconds in PROBE_SECONDS:
            await self._probe_once()
            await asyncio.sleep(seconds)

    async def _probe_once(self) -> None:
        request = self._current_request
        if request is None or self.transport is None:
            return
        if self.probe is not None:
            await self.probe()
        elif not request.writer.output_size:
            self.transport.write(CONTINUE)


class Connections(web.Server):
    """Makes the connections of a server."""

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)

    async def heard(self) -> None:
        """Waits until each client has asked for something, but not long for those that don't."""
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        end = self._loop.time() + FIRST_REQUEST_SECONDS
        while self._loop.time() < end and not all(  # noqa: ASYNC110 (it is over within a moment, and once)
                connection.has_asked for connection in self.connections if isinstance(connection, Connection)):
            await asyncio.sleep(HEAR_SECONDS)


class Runner(web.AppRunner):
    """Runs an app on connections of ours."""

    __slots__ = ()

    async def cleanup(self) -> None:
        """Ends the server: takes no more connections, answers what was asked, and what those ask who were just
        accepted."""
        for site in self.sites:
            await site.stop()
        if isinstance(self.server, Connections):
            await self.server.heard()
        await super().cleanup()

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return Connections(
            server.request_handler, request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation, loop=server._loop, **server._kwargs)
