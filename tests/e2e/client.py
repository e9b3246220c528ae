"""A small client of the native API, for tests that want every event."""

import json
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
    body = {"inputs": inputs, "parameters": {**parameters, "details": True}}
    events = []
    async with session.post(f"{url}/generate_stream", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b"data:"):
                events.append(json.loads(line[5:]))
    assert events, "an empty stream"
    assert "error" not in events[-1], events[-1]
    assert events[-1]["details"] is not None, "the stream broke off"
    assert [event["index"] for event in events] == list(range(1, len(events) + 1))
    return Answer(tuple(event["token"]["id"] for event in events), tuple(event["token"]["logprob"] for event in events),
                  events[-1]["generated_text"], events[-1]["details"]["finish_reason"])
