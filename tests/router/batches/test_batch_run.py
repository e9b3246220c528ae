"""The lines that are asked at once."""

import asyncio

from penstock.router.batches.batch_run import Window


async def test_as_many_lines_are_asked_as_there_are_slots_and_fewer_of_long_ones() -> None:
    num_slots = 2
    window = Window(lambda: num_slots, 100)
    assert [await window.take(1), await window.take(1)] == [50, 50]
    third = asyncio.create_task(window.take(80))
    await asyncio.sleep(0)
    assert not third.done()
    window.give_back(50)
    window.give_back(50)
    assert await third == 80
    num_slots = 10
    assert [await window.take(1), await window.take(11 - 10)] == [10, 10]
    window.give_back(100)
    assert await window.take(1000) == 100
