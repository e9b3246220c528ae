"""Large bodies are read when there is room for them, in order; small ones at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from penstock.router.api.http import body as http_body
from penstock.router.api.http.body_room import MEDIUM, ROOM, SMALL, BodyRoom, Room, least_room
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start


async def test_room_is_given_in_order() -> None:
    room, came = Room(10), []

    async def come(number: int) -> None:
        await room.take(number)
        came.append(number)

    coming = [asyncio.create_task(come(number)) for number in (6, 5, 3, 2)]
    await asyncio.sleep(0)
    assert came == [6], "3 would fit, but 5 was there before"
    coming[1].cancel()
    await coming[2]
    assert came == [6, 3]
    room.give_back(6)
    await coming[3]
    assert came == [6, 3, 2]


async def test_who_leaves_as_the_turn_comes_gives_it_back() -> None:
    room = Room(10)
    await room.take(10)
    coming = asyncio.create_task(room.take(10))
    await asyncio.sleep(0)
    room.give_back(10)
    coming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await coming
    await asyncio.wait_for(room.take(10), 1)


@pytest.mark.parametrize(("limits", "rooms"), [
    (LIMITS, [(MEDIUM, 4 * MEDIUM), (2_000_000, 8_000_000)]),
    (replace(LIMITS, max_input_tokens=10), [(MEDIUM, 4 * MEDIUM), (2_000_000, 8_000_000)]),
    (replace(LIMITS, max_input_tokens=10**6), [(MEDIUM, 128 * MEDIUM), (2_000_000, 128 * 2_000_000)]),
    (replace(LIMITS, payload_limit=1000), [(1000, 128 * 1000)]),
], ids=["usual", "short", "long", "small"])
def test_prompts_that_all_permits_allow_have_room(limits: object, rooms: list[tuple[int, int]]) -> None:
    assert [(size, room._left) for size, room in BodyRoom(limits)._rooms] == rooms
    assert sum(room for _, room in rooms) >= least_room(limits.payload_limit)


def body(length: int) -> bytes:
    return json.dumps({"inputs": "", "x": "." * length}).encode()


async def test_large_bodies_wait_until_others_are_answered(start: Start) -> None:
    """Some come with their length, and some in chunks, which count as the longest. Small ones do not wait."""
    server = await start()
    room = server.client.app[ROOM]._rooms[-1][1]
    whole = room._left
    gate = asyncio.Event()

    async def slowly(content: bytes) -> AsyncIterator[bytes]:
        yield content[:-1]
        await gate.wait()
        yield content[-1:]

    headers = {"content-type": "application/json"}

    async def ask(data: object) -> int:
        async with server.client.post("/generate", data=data, headers=headers) as response:
            return response.status

    slow = [asyncio.create_task(ask(slowly(body(MEDIUM)))) for _ in range(4)]
    await until(lambda: room._left == 0)
    waiting = asyncio.create_task(ask(body(MEDIUM + 1000)))
    await until(lambda: len(room._waiting) == 1)
    assert await ask(body(SMALL - 100)) == 422
    assert await ask(body(MEDIUM - 100)) == 422, "there is other room for these"
    left = asyncio.create_task(ask(body(MEDIUM + 1000)))
    await until(lambda: len(room._waiting) == 2)
    left.cancel()
    await until(lambda: len(room._waiting) == 1)
    assert not waiting.done()
    gate.set()
    assert await asyncio.gather(*slow, waiting) == [422] * 5
    assert room._left == whole


async def test_who_stops_sending_loses_the_room(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is refused long before the time for a body is over; others that wait have their turn."""
    monkeypatch.setattr(http_body, "PAUSE_SECONDS", 0.2)
    server = await start()
    room = server.client.app[ROOM]._rooms[-1][1]
    whole = room._left

    async def stops() -> AsyncIterator[bytes]:
        yield body(MEDIUM)[:-1]
        await asyncio.sleep(30)
        yield b"}"

    stopped = [asyncio.create_task(status_of(server, stops())) for _ in range(4)]
    await until(lambda: room._left == 0)
    assert await asyncio.wait_for(status_of(server, body(MEDIUM + 1000)), 10) == 422
    assert await asyncio.wait_for(asyncio.gather(*stopped), 10) == [408] * 4
    await until(lambda: room._left == whole)


async def test_a_body_is_as_long_as_it_is(start: Start) -> None:
    """Chunks that become too many are refused whether room is needed or not."""
    server = await start(limits=replace(LIMITS, payload_limit=MEDIUM))
    for length, status in ((MEDIUM - 100, 422), (MEDIUM, 413), (3 * MEDIUM, 413)):
        for data in (body(length), chunks(body(length))):
            assert await status_of(server, data) == status
    server = await start(limits=replace(LIMITS, payload_limit=1000))
    for length, status in ((900, 422), (1000, 413)):
        for data in (body(length), chunks(body(length))):
            assert await status_of(server, data) == status


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 10_000):
        yield content[start:start + 10_000]


async def status_of(server: Server, data: object) -> int:
    response = await server.client.post("/generate", data=data, headers={"content-type": "application/json"})
    return int(response.status)
