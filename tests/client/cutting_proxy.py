"""A proxy that breaks answers off: a stand-in for routers that die, at moments that a test chooses."""

import asyncio
from collections.abc import Callable

from penstock.bench.programs.balancer import Balancer


class CuttingProxy(Balancer):
    """Passes TCP connections on to a server, and breaks one off, with a reset, once as many bytes of an answer went
    through as `next_cut` says for it; None lets it through. The bytes `dropped` are left out of requests."""

    def __init__(self, port: int, next_cut: Callable[[], int | None], dropped: bytes = b"") -> None:
        super().__init__([port])
        self.num_cuts = 0
        self._port = port
        self._next_cut = next_cut
        self._dropped = dropped

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        sending = asyncio.ensure_future(_copy(reader, there_writer, None, self._dropped))
        try:
            await _copy(there_reader, writer, self._next_cut())
        except _CutError:
            self.num_cuts += 1
            writer.transport.abort()
        finally:
            sending.cancel()
            there_writer.close()
            writer.close()


class _CutError(Exception):
    pass


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: int | None, dropped: bytes = b""
) -> None:
    left = cut
    while data := (await reader.read(4096)).replace(dropped, b""):
        if left is not None and len(data) >= left:
            writer.write(data[:left])
            await writer.drain()
            await asyncio.sleep(0.002)  # a reset would overtake what is still to be sent
            raise _CutError
        left = None if left is None else left - len(data)
        writer.write(data)
        await writer.drain()
