"""The lines that are asked at once, and the answers that wait to be stored."""

import asyncio

import pytest

from penstock.router.batches import answers, batch_run
from penstock.router.batches import window as window_module
from penstock.router.batches.answers import LineAnswer
from penstock.router.batches.lines import Line
from penstock.router.batches.window import ANSWER_BYTES, Window
from penstock.router.generation.services import Services
from penstock.router.store.records import AnsweredLine
from tests.router.batches.servers import StartBatches, lines


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


async def test_no_line_is_asked_while_many_answers_wait_to_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "KEPT_BYTES", 2 * ANSWER_BYTES + 1)
    window, short, long = Window(lambda: 10, 100), AnsweredLine(1, b"", False), AnsweredLine(2, b"x", False)
    for answer in (short, long):
        await window.take(1, 1)
        window.keep(answer)
    assert window.is_full
    third = asyncio.create_task(window.take(1, 1))
    await asyncio.sleep(0)
    assert not third.done()
    window.let_go(short)
    assert not window.is_full
    assert await third == 10


@pytest.mark.parametrize("kept_bytes", [window_module.KEPT_BYTES, 5 * ANSWER_BYTES])
async def test_a_batch_does_not_wait_for_its_answers_to_be_stored(
    start_batches: StartBatches, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """Its slots are never left empty for that, unless so many answers wait that these are stored without a pause."""
    asked = 0

    async def answer(services: Services, line: Line) -> LineAnswer:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.001)
        return LineAnswer(line.custom_id, 200, "req_1", {})

    monkeypatch.setattr(answers, "answer_line", answer)
    monkeypatch.setattr(batch_run, "SAVE_SECONDS", 3600.0)
    monkeypatch.setattr(batch_run, "GROUP", 1000)
    monkeypatch.setattr(window_module, "KEPT_BYTES", kept_bytes)
    batches = await start_batches()
    num_lines = 3 * batches.server.groups.num_slots
    batch = await batches.ended(await batches.create(lines(range(num_lines))))
    assert (batch.request_counts.completed, asked) == (num_lines, num_lines)
