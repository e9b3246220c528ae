"""A small client of the native API, for tests that want every event."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request yielded: ids and logprobs bit for bit, the text, why it ended."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: str


@asynccontextmanager
async def many_clients() -> AsyncIterator[aiohttp.ClientSession]:
    """A session with as many connections as there are requests, and all the time they need."""
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield session


async def generate(session: aiohttp.ClientSession, url: str, inputs: str, **parameters: Any) -> Answer:
    """One request over /generate."""
    body = {"inputs": inputs, "parameters": {**parameters, "details": True}}
    async with session.post(f"{url}/generate", json=body) as response:
        reply = await response.json()
    assert response.status == 200, reply
    details = reply["details"]
    return Answer(tuple(token["id"] for token in details["tokens"]),
                  tuple(token["logprob"] for token in details["tokens"]),
                  reply["generated_text"], details["finish_reason"])


async def stream(session: aiohttp.ClientSession, url: str, inputs: str, **parameters: Any) -> Answer:
    """One request over /generate_stream. Fails unless the stream is whole."""
    return whole([event async for event in events(session, url, inputs, **parameters)])


async def events(
    session: aiohttp.ClientSession, url: str, inputs: str, **parameters: Any
) -> AsyncIterator[dict[str, Any]]:
    """The events of one request over /generate_stream, as they come."""
    body = {"inputs": inputs, "parameters": {**parameters, "details": True}}
    async with session.post(f"{url}/generate_stream", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b"data:"):
                yield json.loads(line[5:])


def whole(events: Sequence[dict[str, Any]]) -> Answer:
    """The answer that the events of one stream make. Fails unless none is missing."""
    assert events, "an empty stream"
    assert "error" not in events[-1], events[-1]
    assert events[-1]["details"] is not None, "the stream broke off"
    assert [event["index"] for event in events] == list(range(1, len(events) + 1))
    return Answer(tuple(event["token"]["id"] for event in events), tuple(event["token"]["logprob"] for event in events),
                  events[-1]["generated_text"], events[-1]["details"]["finish_reason"])


async def scrape(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """The value of every series in /metrics, by its name and labels as they stand there."""
    async with session.get(f"{url}/metrics") as response:
        text = await response.text()
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


async def metric(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """The value of one series of /metrics."""
    return (await scrape(session, url))[name]


async def until_running(session: aiohttp.ClientSession, url: str, number: int, seconds: float = 60.0) -> None:
    """Wait until so many requests run together: where no more were sent, none waits and none has ended."""
    deadline = time.monotonic() + seconds
    while (running := await metric(session, url, "tgi_batch_current_size")) != number:
        assert time.monotonic() < deadline, f"{running:g} run, not {number}"
        await asyncio.sleep(0.01)


async def until_idle(session: aiohttp.ClientSession, url: str, seconds: float = 2.0) -> None:
    """Wait for the last step in flight, which may name a sequence that has ended; then no block must be held."""
    deadline = time.monotonic() + seconds
    while (used := await metric(session, url, 'penstock_kv_blocks{state="used"}')) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert used == 0, f"{used} blocks are held by nobody"
