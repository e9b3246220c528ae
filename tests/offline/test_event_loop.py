"""The end of an event loop of its own thread, as those see it who wait for it."""

import asyncio

import pytest

from penstock.offline.arguments import launcher_config
from penstock.offline.event_loop import EventLoop
from penstock.offline.session import Session


async def test_a_reader_is_told_that_it_was_closed() -> None:
    loop = EventLoop("test")
    begun = asyncio.Event()
    here = asyncio.get_running_loop()

    async def work() -> None:
        here.call_soon_threadsafe(begun.set)
        await asyncio.Event().wait()

    async def read() -> None:
        await loop.result(work())

    reader, cancelled = asyncio.create_task(read()), asyncio.create_task(read())
    await begun.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await asyncio.to_thread(loop.close)
    with pytest.raises(RuntimeError, match="the LLM is closed"):
        await reader


async def test_who_comes_too_late_is_told_that_it_was_closed(recwarn: pytest.WarningsRecorder) -> None:
    loop = EventLoop("test")
    await asyncio.to_thread(loop.close)
    for ask in (loop.submit, loop.run):
        with pytest.raises(RuntimeError, match=r"^the LLM is closed$"):
            ask(asyncio.sleep(0))
    with pytest.raises(RuntimeError, match=r"^the LLM is closed$"):
        await loop.result(asyncio.sleep(0))
    assert not recwarn.list, "coroutines are closed"


async def test_who_comes_while_it_closes_is_told_so() -> None:
    loop, told = EventLoop("test"), list[str]()
    begun = asyncio.Event()
    here = asyncio.get_running_loop()

    async def work() -> None:
        here.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            try:
                loop.submit(asyncio.sleep(0))
            except RuntimeError as error:
                told.append(str(error))

    loop.submit(work())
    await begun.wait()
    await asyncio.to_thread(loop.close)
    assert told == ["the LLM is closed"]


async def test_who_waits_for_a_model_is_told_that_it_was_closed() -> None:
    session = Session(launcher_config({"model": "/nowhere"}))
    living = asyncio.create_task(session.live())
    await asyncio.sleep(0)  # it has begun
    living.cancel()
    await asyncio.wait([living])
    with pytest.raises(RuntimeError, match="the LLM is closed"):
        session.opened.result()
