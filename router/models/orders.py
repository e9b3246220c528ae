"""The router's orders to the launcher, which starts and ends the shards of models: a line for each, by a pipe."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

LOAD, UNLOAD = "load", "unload"


class Orders:
    """The router's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def load(self, model: str) -> None:
        """Has the shards of a model started, if they do not run."""
        self._send(LOAD, model)

    def unload(self, model: str) -> None:
        """Has the shards of a model ended."""
        self._send(UNLOAD, model)

    def _send(self, order: str, model: str) -> None:
        with suppress(BrokenPipeError):  # without a launcher the router ends, too
            os.write(self._fd, f"{order} {model}\n".encode())


class OrderPipe:
    """The pipe to the launcher from whichever router runs, which inherits its end `fd`."""

    def __init__(self) -> None:
        self._end, self.fd = os.pipe()
        os.set_blocking(self._end, False)
        self._rest = b""

    def follow(self, take: Callable[[str, str], None]) -> None:
        """Has `take` called in the event loop with each order and its model."""
        asyncio.get_running_loop().add_reader(self._end, self._read, take)

    def _read(self, take: Callable[[str, str], None]) -> None:
        *lines, self._rest = (self._rest + os.read(self._end, 1 << 16)).split(b"\n")
        for line in lines:
            order, _, model = line.decode().partition(" ")
            take(order, model)

    def close(self) -> None:
        with suppress(RuntimeError):  # outside an event loop nothing follows it
            asyncio.get_running_loop().remove_reader(self._end)
        os.close(self._end)
        os.close(self.fd)
