"""A connection between the launchers of one group's machines: messages in JSON, one a line."""

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any, Self

from penstock.system.wire_tls import WireTls

BEAT_SECONDS = 0.5
LOST_SECONDS = 4.0
"""After how long a silence the other end counts as lost, as behind a cut wire."""
CONNECT_SECONDS = 4.0
CLOSE_SECONDS = 1.0
"""How long the other end may take to agree that a connection ends."""

Message = dict[str, Any]


class NodeLink:
    """One end of a connection. Both ends say that they are there twice a second."""

    @classmethod
    async def called(cls, leader: tuple[str, int], tls: WireTls | None) -> Self:
        """Calls the first machine, which is at the host and port `leader`. Raises OSError or ValueError if it can't be
        reached, or the files of `tls`, which are read for each connection, can't be used."""
        protection = {} if tls is None else _protection(tls, is_server=False) | {"server_hostname": tls.name}
        return cls(*await asyncio.wait_for(asyncio.open_connection(*leader, **protection), CONNECT_SECONDS))

    @classmethod
    async def answered(cls, caller: socket.socket, tls: WireTls | None) -> Self:
        """Answers a machine whose connection `caller` was taken. Raises as `called` does."""
        protection = {} if tls is None else _protection(tls, is_server=True)
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, caller, **protection)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.has_heard = False
        """Whether the other end has ever said anything."""
        self._beating = asyncio.create_task(self._beat())

    @property
    def own_host(self) -> str:
        """The address of this machine that the connection uses."""
        return str(self._writer.get_extra_info("sockname")[0])

    def send(self, kind: str, **content: Any) -> None:
        """Sends a message, unless the connection is lost."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"kind": kind, **content}).encode() + b"\n")

    async def receive(self) -> Message | None:
        """Waits for the next message; returns None once the connection is lost, or holds no messages."""
        while True:
            try:
                line = await asyncio.wait_for(self._reader.readline(), LOST_SECONDS)
                message = json.loads(line) if line else None
                self.has_heard |= message is not None
            except (OSError, ValueError, RecursionError):  # TimeoutError is an OSError
                message = None
            if not isinstance(message, dict):
                self.close()
                return None
            if message.get("kind") != "beat":
                return message

    def close(self) -> None:
        """Ends the connection, behind what was sent."""
        self._beating.cancel()
        with suppress(RuntimeError):  # the event loop is closed
            self._writer.close()

    async def end(self) -> None:
        """Ends the connection, and waits until the other end agrees, or is lost; not if it is cancelled."""
        self.close()
        try:
            with suppress(OSError):
                await self._writer.wait_closed()
        except asyncio.CancelledError:
            self._writer.transport.abort()
            raise

    async def _beat(self) -> None:
        while True:
            self.send("beat")
            await asyncio.sleep(BEAT_SECONDS)


def _protection(tls: WireTls, is_server: bool) -> dict[str, Any]:
    return {"ssl": tls.context(is_server), "ssl_handshake_timeout": CONNECT_SECONDS,
            "ssl_shutdown_timeout": CLOSE_SECONDS}
