"""A connection between two processes of one server, which carries Python's objects.

Both are the same program and run as the same user, so they need no format of their own. A frame is the length of a
pickle, and the pickle of a list: all that was sent in one turn of the event loop goes in one frame, so that a step's
tokens cost one write and one read.
"""

import asyncio
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

from penstock.system import peers

_LENGTH = struct.Struct("<I")


class Channel(asyncio.Protocol):
    """Sends and takes objects. `take` gets those of a frame in their order; `lose` is called once, when the other
    process is gone or is another user's."""

    def __init__(self, take: Callable[[list[Any]], None], lose: Callable[[], None]) -> None:
        self._take = take
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._to_send: list[Any] = []
        self._received = bytearray()

    def send(self, item: object) -> None:
        """Sends an object at the end of this turn of the event loop; does nothing once the other process is gone."""
        if not self._to_send:
            self._loop.call_soon(self._flush)
        self._to_send.append(item)

    def close(self) -> None:
        """Ends the connection once all is sent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = own_end = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio's
        link = transport.get_extra_info("socket")
        with socket.socket(fileno=socket.dup(link.fileno())) as own:
            if not peers.is_trusted(peers.user_of(own)):
                own_end.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            items = pickle.loads(memoryview(self._received)[_LENGTH.size:end])
            del self._received[:end]
            self._take(items)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lose()

    def _flush(self) -> None:
        items, self._to_send = self._to_send, []
        if items and self._transport is not None:
            frame = pickle.dumps(items, pickle.HIGHEST_PROTOCOL)
            self._transport.write(_LENGTH.pack(len(frame)) + frame)
