"""Server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from aiohttp import web

from penstock.router.api.http.connection import Connection
from penstock.router.api.http.failures import to_router_error
from penstock.router.api.http.headers import takes_events
from penstock.router.api.http.receipts import EVENT, receipt_event
from penstock.router.errors import AnotherAnswer, RouterError
from penstock.router.generation.identity import Identity
from penstock.router.generation.services import first_of

KEEP_ALIVE = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection."""
UNREAD_SECONDS = 60.0
"""Seconds that a write may wait for a client that does not read; then its connection is broken off."""
_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


STRICT = web.RequestKey[bool]("strict")
"""Whether a request's stream waits for its first event, and what comes in its place is raised."""
NO_ANSWER = -1
"""Stands for an answer's index in events that belong to none."""
_LINE_BREAKS = [(character.encode(), b"\\u%04x" % ord(character)) for character in "\x85\u2028\u2029"]
"""The characters that `str.splitlines` takes for line breaks, in UTF-8 and as JSON escapes them."""


class AnswerEvent(NamedTuple):
    """An event: the index of the `answer` that it belongs to, its data, and its name, where the API's events have any.
    """

    answer: int
    data: bytes
    name: bytes = b""


ADMITTED = AnswerEvent(NO_ANSWER, b"")
"""Comes before the events and is not sent: the request is checked, and its answers are being computed."""


@dataclass(frozen=True, slots=True)
class EventStyle:
    """The way in which an API writes a stream: the data and the name of the event that tells of a failure, the data of
    the `last` event, if there is one behind the answers', and the event that keeps the connection alive, if that is no
    comment.

    As in TGI a failure is an event: the status is sent first, unless the API `waits` until the request is admitted, and
    tells otherwise of what comes instead.
    """

    failure: Callable[[RouterError], bytes]
    failure_name: bytes = b""
    last: bytes | None = None
    ping: bytes | None = None
    waits: bool = False


class EventPlaces:
    """Counts the events of each of a request's answers: tells which the client has, and the ids of the others."""

    def __init__(self, identity: Identity) -> None:
        self._name = identity.name
        self._resume = identity.wish.names.resume
        self._prefix = f"{identity.name}.".encode()
        self._delivered = list(identity.delivered)
        self._made = [0] * len(identity.delivered)
        self._is_one = len(identity.delivered) == 2 and not identity.delivered[NO_ANSWER]

    def take(self, index: int) -> bytes | None:
        """Takes an answer's next event: returns its id, or None if the client has it."""
        number = self._made[index] = self._made[index] + 1
        if number <= self._delivered[index]:
            return None
        self._delivered[index] = number
        if self._is_one and not index:
            return b"%b%d" % (self._prefix, number)
        return self._name.at(self._delivered).encode()

    def check(self) -> None:
        """Called behind the last event. Raises AnotherAnswer if the client has more events than there are."""
        if any(made < delivered for made, delivered in zip(self._made, self._delivered, strict=True)):
            raise AnotherAnswer(f"`{self._resume}` counts more events than the answer has here, so that it names "
                                "another one")


def one_line(data: bytes) -> bytes:
    """Returns JSON without the line breaks of Unicode in its strings, which some clients take for the ends of lines.
    Those of ASCII are escaped in all JSON."""
    if data.isascii():
        return data
    for character, escaped in _LINE_BREAKS:
        data = data.replace(character, escaped)
    return data


class EventWriter:
    """Writes events to one client. It is used by `async with`, which sends the headers and keeps the connection
    alive."""

    def __init__(
        self, request: web.Request, headers: Mapping[str, str], has_ids: bool = False, ping: bytes | None = None
    ) -> None:
        """With `has_ids` comments are no events of their own, which to some clients have the id of the last one. `ping`
        is as in `EventStyle`."""
        self._takes_events = takes_events(request)
        self._ping = ping or (b":\n" if has_ids else b":\n\n")
        self.response = web.StreamResponse(headers={**_HEADERS, **headers})
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._num_waiting = 0

    async def __aenter__(self) -> Self:
        await self.response.prepare(self._request)
        self._set_probe(partial(self._write, self._ping))
        self._keeper = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeper.cancel()
        del self._keeper  # it refers to the writer, which would stay until the next collection
        self._set_probe(None)

    async def send(self, data: bytes, id: bytes = b"", name: bytes = b"") -> None:
        """Sends one event; `data` is JSON, or a word. Its id comes last, for clients that look for `data` first."""
        frame = b"data: %b\n" % one_line(data)
        if name:
            frame = b"event: %b\n%b" % (name, frame)
        await self._write(b"%bid: %b\n\n" % (frame, id) if id else b"%b\n" % frame)

    async def pass_on(self, events: bytes) -> None:
        """Sends events that are written already."""
        await self._write(events)

    async def fail(self, error: RouterError, style: EventStyle) -> None:
        """Sends the event of a failure, and to clients that take whole events after how many milliseconds they may try
        again, where that may help.

        That is the event stream's own way of saying so (HTML Standard, 9.2.5, `retry`), for the headers are sent. It
        comes behind the data, for clients that look for `data` at the start of an event; as one of its own it would be
        an empty event to OpenAI's client.
        """
        has_retry = error.retry_after is not None and self._takes_events
        retry = b"retry: %d\n" % (1000 * (error.retry_after or 0)) if has_retry else b""
        name = b"event: %b\n" % style.failure_name if style.failure_name else b""
        await self._write(b"%bdata: %b\n%b\n" % (name, one_line(style.failure(error)), retry))

    async def _write(self, frame: bytes) -> None:
        self._written_at = self._loop.time()
        self._num_waiting += 1
        await self.response.write(frame)
        self._num_waiting -= 1

    def _set_probe(self, probe: Callable[[], Awaitable[None]] | None) -> None:
        if isinstance(self._request.protocol, Connection):
            self._request.protocol.probe = probe

    async def _keep_alive(self) -> None:
        """Writes pings while there are no events. Breaks the connection off if its client does not read."""
        with suppress(ConnectionError):
            with suppress(TimeoutError):
                while (silence := self._loop.time() - self._written_at) < UNREAD_SECONDS or not self._num_waiting:
                    if silence < KEEP_ALIVE:
                        await asyncio.sleep(KEEP_ALIVE - silence)
                    elif self._num_waiting:
                        await asyncio.sleep(UNREAD_SECONDS - silence)
                    else:
                        async with asyncio.timeout(UNREAD_SECONDS):
                            await self._write(self._ping)
            if self._request.transport is not None:
                self._request.transport.abort()


async def stream_events(
    request: web.Request, headers: Mapping[str, str], events: AsyncGenerator[AnswerEvent], style: EventStyle,
    identity: Identity | None = None,
) -> web.StreamResponse:
    """Answers with `events`, which are ADMITTED and at least one more, in the style of an API.

    To clients that take them events have ids, and those that the client has are left out. A failure has none, so that
    a client that goes on does so behind the last event before it.

    A server that is strict about it, or about this request, waits for the first event, and raises what comes in its
    place.
    """
    is_strict = first_of(request).limits.strict_streaming_errors or request.get(STRICT, False)
    waits = style.waits or is_strict
    places = EventPlaces(identity) if identity is not None and identity.wish.takes_ids else None
    writer = EventWriter(request, headers, has_ids=places is not None, ping=style.ping)
    place = (lambda index: b"") if places is None else places.take
    has_cache = first_of(request).around.cache is not None  # of which the headers tell
    refusal: Exception | None = None
    async with aclosing(events):
        if waits:
            await anext(events)
        elif has_cache:
            refusal = await _refusal(events)
        first = await anext(events) if is_strict else None
        with suppress(ConnectionError):  # the client has left, nobody is to be told
            async with writer:
                try:
                    if refusal is not None:
                        raise refusal
                    if not waits and not has_cache:
                        await anext(events)
                    if first is not None and (id := place(first.answer)) is not None:
                        await writer.send(first.data, id, first.name)
                    async for index, data, name in events:
                        if (id := place(index)) is not None:
                            await writer.send(data, id, name)
                    id = None if style.last is None else place(NO_ANSWER)
                    if places is not None:
                        places.check()
                    if (receipt := await receipt_event(request)) is not None:
                        await writer.send(receipt, name=EVENT)
                    if style.last is not None and id is not None:
                        await writer.send(style.last, id)
                except ConnectionError:
                    raise
                except Exception as exception:
                    await writer.fail(to_router_error(exception), style)
                    if style.last is not None:
                        await writer.send(style.last)
    return writer.response


async def _refusal(events: AsyncGenerator[AnswerEvent]) -> Exception | None:
    """Waits until the request is admitted; returns what comes in place of that, which an event is to tell."""
    try:
        await anext(events)
    except Exception as error:
        return error
    return None
