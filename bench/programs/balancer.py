"""A TCP balancer of a few lines, such as stands before several servers."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Self


class Balancer:
    """Passes each connection on to the next of the servers at `ports` that takes it; a context manager."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._turns = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Returns where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = next(self._turns)
        for number in range(len(self._ports)):
            try:
                there = await asyncio.open_connection("127.0.0.1", self._ports[(turn + number) % len(self._ports)])
                break
            except OSError:
                continue
        else:
            writer.transport.abort()
            return
        copies = [asyncio.ensure_future(_copy(reader, there[1])), asyncio.ensure_future(_copy(there[0], writer))]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            for end in (there[1], writer):
                end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
