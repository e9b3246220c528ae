"""A connection that answers a client which has ended its own half of it, or whose request comes as the server ends, and
one whose request can't be read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import HttpVersion11, StreamReader, hdrs, web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from penstock.router.api.http.headers import SERVER_NAME

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ACCEPTING_TURNS = 3
"""Turns of the event loop after which a connection that was just accepted waits for its request. Before, aiohttp does
not know of it, or waits for the end of its handler without end."""
FIRST_REQUEST_SECONDS = 1.0
"""How long a server that ends waits for the first request of a connection that it has just accepted."""
HEAR_SECONDS = 0.01
PROBE_SECONDS = (0.1, 0.9, 0.0)
"""Seconds after each probe, in which a reset comes back from a client that is gone."""
MAX_LINE = 1 << 16
"""The most bytes of a request line, and of a header: as many as proxies send."""
MAX_HEAD = 1 << 18
"""The most bytes of all that comes before a body."""
MAX_HEADERS = 128
"""The most headers of a request."""
TOO_LARGE = (f"The request line and each header may have up to {MAX_LINE} bytes, and all of them together up to "
             f"{MAX_HEAD}; there may be up to {MAX_HEADERS} headers.")
_TOO_MANY = "Too many headers received"
"""aiohttp's words, by which alone this error differs from others of its class."""


class Connection(RequestHandler):
    """A client's end of file is not its leaving: `shutdown(SHUT_WR)` sends one, and waits for the answer.

    Nothing but a write tells the one from the other: a client that is gone answers it with a reset, after which the
    next write fails, and the request is cancelled. So something is written that a client skips: interim responses
    (RFC 9110, 15.2) before the answer, and what `probe` is set to while one is streamed. Clients of HTTP/1.0 know no
    interim responses; most of them are proxies, whose end of file means that their own client has left.
    """

    __slots__ = ("_head_size", "_is_old", "_newest", "_payload", "_prober", "has_asked", "probe")

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **kwargs: Any) -> None:
        super().__init__(manager, loop=loop, **kwargs)
        self._request_factory = self._make_request
        self._payload: StreamReader | None = None
        self._newest: StreamReader = EMPTY_PAYLOAD
        """The body of the request that came last."""
        self._head_size = 0
        """The bytes of the head of the next request that have come."""
        self._is_old = False
        self._prober: asyncio.Task[None] | None = None
        self.has_asked = False
        """Whether a request has come. A client that has not yet asked may just be about to."""
        self.probe: Callable[[], Awaitable[None]] | None = None
        """Writes bytes that the client of the streamed response skips."""

    def data_received(self, data: bytes) -> None:
        """Takes bytes of the client. The parser bounds each header and how many there are, which together may still be
        megabytes that nothing else bounds."""
        is_head, num_requests = self._newest.is_eof(), self._request_count
        super().data_received(data)
        if self._request_count != num_requests:
            self._newest, self._head_size = self._messages[-1][1], 0
        elif is_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD and not (self._close or self._force_close):
                self._refuse_head()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Returns the answer to what can't be read, which comes to no handler of the app."""
        if isinstance(exc, LineTooLong) or (isinstance(exc, BadHttpMessage) and exc.message == _TOO_MANY):
            status, message = web.HTTPRequestHeaderFieldsTooLarge.status_code, TOO_LARGE
        response = super().handle_error(request, status, exc, message)
        response.headers[hdrs.SERVER] = SERVER_NAME
        return response

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

    def _refuse_head(self) -> None:
        """Answers the request as if the parser had found it too long."""
        self._head_size = 0
        self._messages.append((_ErrInfo(0, LineTooLong(b"", MAX_HEAD), ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def finish_response(self, *response: Any) -> tuple[web.StreamResponse, bool]:
        """Sends the response's end; the last one to a client that sends no more ends the connection."""
        try:
            return await super().finish_response(*response)
        finally:
            self._payload = None
            if self._prober is not None and not self._messages:
                self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        # All these refer to the connection: without them what it holds goes now, and not with the next collection.
        if self._prober is not None:
            self._prober.cancel()
        self._prober = self.probe = self._payload = None
        self._newest = EMPTY_PAYLOAD
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
