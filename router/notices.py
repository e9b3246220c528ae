"""The messages between launcher and router while both run, a byte for each, by two pipes."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from penstock.system.signs import Sign

LIFE_SECONDS = 0.25
"""How often a process tells that it lives."""


class Notice(bytes, Enum):
    """A message of the launcher to the router."""

    LOADING = b"l"
    """The shards make progress in loading."""
    GIVEN_UP = b"g"
    """The shards will not be started again."""
    LEFT = b"e"
    """The shards that were to end have done so, or rest."""


class NoticePipe:
    """The pipe from the launcher to whichever router runs, which inherits its end `fd`."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        os.set_blocking(self._end, False)

    def send(self, notice: Notice) -> None:
        """Sends a notice, unless no router has read any for long."""
        with suppress(BlockingIOError):
            os.write(self._end, notice)

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._end)


def receive(fd: int, take: Callable[[Notice], None], end: Callable[[], None]) -> None:
    """Has `take` called with each notice that arrives, and `end` when the launcher is gone, in the event loop."""
    os.set_blocking(fd, False)
    loop = asyncio.get_running_loop()

    def read() -> None:
        notices = os.read(fd, 4096)
        if not notices:
            loop.remove_reader(fd)
            end()
        for notice in {bytes([byte]) for byte in notices}:
            take(Notice(notice))

    loop.add_reader(fd, read)


@contextmanager
def giving_signs(fd: int) -> Iterator[Callable[[Sign], None]]:
    """Tells that the event loop runs while the block runs; yields the function that gives another sign."""
    os.set_blocking(fd, False)

    def tell(sign: Sign) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # a launcher that was stopped reads later, a dead one never
            os.write(fd, sign)

    async def keep_telling() -> None:
        while True:
            tell(Sign.ALIVE)
            await asyncio.sleep(LIFE_SECONDS)

    task = asyncio.create_task(keep_telling())
    try:
        yield tell
    finally:
        task.cancel()
