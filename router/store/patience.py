"""Patience with a database that is away or full: who works on a batch or a response waits, and goes on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

from penstock.router.store.errors import StoreFull, StoreUnavailable
from penstock.router.store.files import Files

_T = TypeVar("_T")

SHORTEST, LONGEST = 0.1, 5.0
"""The seconds between two tries, which grow."""


async def patiently(act: Callable[[], Awaitable[_T]]) -> _T:
    """Returns the result of `act`, which is tried again until the database takes it."""
    pause = SHORTEST
    while True:
        try:
            return await act()
        except (StoreUnavailable, StoreFull):
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST)


async def parts_of(files: Files, id: str) -> AsyncIterator[bytes]:
    """Yields the content of a file, part by part."""
    number = 0
    while (part := await patiently(partial(files.part, id, number))) is not None:
        yield part
        number += 1
