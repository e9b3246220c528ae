"""Answers to the messages of a stream, computed together and sent in the order of the messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from penstock.router.errors import Overloaded
from penstock.router.generation.asking import Asking
from penstock.router.generation.request_record import waiting

Message = TypeVar("Message")
Reply = TypeVar("Reply")
MOST_AT_ONCE = 64
"""The most messages of a stream that are computed, or wait for it, at once."""
PAUSE_SECONDS = 0.02
"""After so many it is looked again whether there is room for a message."""


async def answer_in_order(
    messages: AsyncIterator[Message], answer: Callable[[Message], Coroutine[Any, Any, Reply]],
    send: Callable[[Reply], Awaitable[None]],
) -> None:
    """Sends the answer to each message. The first failure is raised when its turn comes; the others are cancelled."""
    running: asyncio.Queue[asyncio.Task[Reply] | None] = asyncio.Queue()
    room = asyncio.Semaphore(MOST_AT_ONCE)
    tasks: set[asyncio.Task[Reply]] = set()

    async def read() -> None:
        try:
            async for message in messages:
                await room.acquire()
                task = asyncio.create_task(answer(message))
                tasks.add(task)
                running.put_nowait(task)
        finally:
            running.put_nowait(None)  # which never waits, for this may be cancelled when nobody takes any more

    reader = asyncio.create_task(read())
    try:
        while (task := await running.get()) is not None:
            await send(await task)
            tasks.discard(task)
            room.release()
        await reader
    finally:
        left = [reader, *tasks]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class PatientAsking(Asking):
    """A request of a stream, which waits for its permits, for its client can't tell which of its messages to send
    again."""

    @asynccontextmanager
    async def permit(self, number: int = 1) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with waiting("permit"):
                await self._take(number, stack)
            yield

    async def _take(self, number: int, stack: AsyncExitStack) -> None:
        while True:
            try:
                await stack.enter_async_context(super().permit(number))
                return
            except Overloaded:
                await asyncio.sleep(PAUSE_SECONDS)
