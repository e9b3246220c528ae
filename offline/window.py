"""Asks for many answers, of which some wait while others are computed."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WAITING_SHARE = 2
"""How many times as many are asked for at once as run: the next must be there when one ends, but thousands that wait in
the scheduler would help nobody."""


async def ask_each(questions: AsyncIterable[T], num_slots: int, ask: Callable[[T], Awaitable[None]]) -> None:
    """Calls `ask` for each question, in their order, for at most WAITING_SHARE times `num_slots` at once. The first
    error ends all that is asked, and is raised."""
    places = asyncio.Semaphore(WAITING_SHARE * num_slots)

    async def one(question: T) -> None:
        try:
            await ask(question)
        finally:
            places.release()

    try:
        async with asyncio.TaskGroup() as tasks:
            async for question in questions:
                await places.acquire()
                tasks.create_task(one(question))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
