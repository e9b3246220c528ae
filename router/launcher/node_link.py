"""A connection between the launchers of one group's machines: messages in JSON, one a line."""

import asyncio
import json
from contextlib import suppress
from typing import Any

BEAT_SECONDS = 0.5
LOST_SECONDS = 4.0
"""After how long a silence the other end counts as lost, as behind a cut wire."""

Message = dict[str, Any]


class NodeLink:
    """One end of a connection. Both ends say that they are there twice a second."""

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

    async def _beat(self) -> None:
        while True:
            self.send("beat")
            await asyncio.sleep(BEAT_SECONDS)
