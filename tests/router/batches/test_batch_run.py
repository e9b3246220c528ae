"""The lines that are asked at once."""

import asyncio

from penstock.router.batches.batch_run import Window


async def test_as_many_lines_are_asked_as_there_are_slots_and_fewer_of_long_ones() -> None:
    num_slots = 2
    window = Window(lambda: num_slots, 100)
    assert [await window.take(1, 1), await window.take(1, 1)] == [50, 50]
    third = asyncio.create_task(window.take(80, 1))
    await asyncio.sleep(0)
    assert not third.done()
    window.give_back(50)
    window.give_back(50)
    assert await third == 80
    num_slots = 10
    assert [await window.take(1, 1), await window.take(11 - 10, 1)] == [10, 10]
    window.give_back(100)
    assert await window.take(1000, 1) == 100


async def test_a_line_takes_as_much_as_its_sequences_and_at_most_everything() -> None:
    window = Window(lambda: 10, 100)
    assert await window.take(1, 4) == 40
    assert await window.take(55, 4) == 55
    second = asyncio.create_task(window.take(1, 128))
    await asyncio.sleep(0)
    assert not second.done()
    window.give_back(95)
    assert await second == 100
