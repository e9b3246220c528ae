"""The answers to the messages of a stream."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.router.rpc.in_order import MOST_AT_ONCE, answer_in_order


async def test_a_failure_ends_a_stream_of_more_messages_than_are_computed_at_once() -> None:
    async def messages() -> AsyncIterator[int]:
        for number in range(3 * MOST_AT_ONCE):
            yield number

    async def answer(number: int) -> int:
        if number == 1:
            for _ in range(4 * MOST_AT_ONCE):  # until as many messages have come as may
                await asyncio.sleep(0)
            raise ValueError(number)
        return number

    sent: list[int] = []

    async def send(number: int) -> None:
        sent.append(number)

    async with asyncio.timeout(5):
        with pytest.raises(ValueError, match="1"):
            await answer_in_order(messages(), answer, send)
    assert sent == [0]
