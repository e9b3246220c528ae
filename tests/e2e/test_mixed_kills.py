"""Shards are killed under requests of every kind: each answer is what it is without that, to the bit."""

import asyncio
import json
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import many_clients, metric, scrape, until_idle
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve

PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "maxItems": 5}},
    "required": ["name", "age", "tags"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"path": {"type": "string", "maxLength": 16}, "depth": {"enum": [1, 2, 3]}},
    "required": ["path", "depth"], "additionalProperties": False}}} for name in ("walk", "glob")]
KINDS = ("greedy", "sampled", "n = 3", "grammar", "tools", "penalties", "logprobs", "stop strings")
PER_KIND = 4
VARIABLE = ("id", "created", "prefix_hit_tokens", "prompt_tokens_details")
"""Keys of an answer that may differ between two equal requests."""


@dataclass(frozen=True, slots=True)
class Ask:
    path: str
    body: dict[str, Any]


def _native(rng: random.Random, **parameters: Any) -> Ask:
    path = rng.choice(["/generate", "/generate_stream"])
    return Ask(path, {"inputs": source(rng, rng.randint(1, 10)), "parameters": {
        "max_new_tokens": rng.randint(20, 80), "details": True, **parameters}})


def _completion(rng: random.Random, **fields: Any) -> Ask:
    return Ask("/v1/completions", {"prompt": source(rng, rng.randint(1, 10)), "max_tokens": rng.randint(20, 80),
                                   "stream": rng.random() < 0.5, **fields})


def _chat(rng: random.Random, **fields: Any) -> Ask:
    return Ask("/v1/chat/completions", {
        "messages": [{"role": "user", "content": source(rng, rng.randint(1, 6))}], "max_tokens": rng.randint(30, 90),
        "stream": rng.random() < 0.5, **fields})


def _sampled(rng: random.Random) -> dict[str, Any]:
    return {"seed": rng.getrandbits(63), "temperature": rng.uniform(0.6, 1.1)}


def make_asks(rng: random.Random) -> list[Ask]:
    """PER_KIND of each of KINDS, in their order."""
    kinds = [
        lambda: _native(rng, top_n_tokens=2),
        lambda: _native(rng, do_sample=True, top_p=0.9, typical_p=0.95, min_p=0.01, watermark=True, **_sampled(rng)),
        lambda: _completion(rng, n=3, logprobs=2, **_sampled(rng)),
        lambda: _chat(rng, response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}},
                      **_sampled(rng)),
        lambda: _chat(rng, tools=TOOLS, tool_choice=rng.choice(["auto", "required"]), max_tokens=150, **_sampled(rng)),
        lambda: _completion(rng, presence_penalty=0.5, frequency_penalty=0.3, repetition_penalty=1.1,
                            logit_bias={str(rng.randrange(300, 900)): 2.0}, min_tokens=10, **_sampled(rng)),
        lambda: _completion(rng, echo=True, logprobs=1, temperature=0),
        lambda: _chat(rng, n=2, stop=["return", "\n\n"], logprobs=True, top_logprobs=2, **_sampled(rng)),
    ]
    return [kind() for kind in kinds for _ in range(PER_KIND)]


async def answer(session: aiohttp.ClientSession, url: str, ask: Ask) -> object:
    """What came back, without what may vary; a stream as the chunks of each choice."""
    async with session.post(url + ask.path, json=ask.body) as response:
        text = await response.text()
    assert response.status == 200, text
    if response.content_type != "text/event-stream":
        return steady(json.loads(text))
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data:")]
    chunks = [json.loads(line) for line in lines if line != "[DONE]"]
    assert not any("error" in chunk for chunk in chunks), chunks[-1]
    assert ask.path == "/generate_stream" or lines[-1] == "[DONE]"
    choices: dict[int, list[object]] = {}
    for chunk in chunks:
        for choice in chunk.get("choices", [chunk]):
            choices.setdefault(choice.get("index", 0) if "choices" in chunk else 0, []).append(steady(choice))
    return choices


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in VARIABLE}
    return [steady(item) for item in value] if isinstance(value, list) else value


def ask_all(session: aiohttp.ClientSession, server: Server, asks: Sequence[Ask]) -> "list[asyncio.Task[object]]":
    return [asyncio.create_task(answer(session, server.url, ask)) for ask in asks]


async def strike(
    session: aiohttp.ClientSession, server: Server, rng: random.Random, running: "Sequence[asyncio.Task[object]]"
) -> list[set[str]]:
    """Kill shards, again and again, each time after some tokens and while nothing waits: whoever has no answer yet is
    under way then. Their kinds, for each blow."""
    blows: list[set[str]] = []
    for _ in range(4):
        num_tokens = await metric(session, server.url, "penstock_generated_tokens") + rng.randint(40, 300)
        while True:
            hit = {KINDS[index // PER_KIND] for index, task in enumerate(running) if not task.done()}
            if not hit:
                return blows
            series = await scrape(session, server.url)
            if series["penstock_generated_tokens"] >= num_tokens and not series["tgi_queue_size"]:
                break
            await asyncio.sleep(0.005)
        group = server.shards()
        for rank in rng.choice([(0,), (1,), (0, 1)]):
            group[rank].send_signal(signal.SIGKILL)
        blows.append(hit)
    return blows


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_kind_of_request_outlives_its_shards(tmp_path: Path) -> None:
    rng = random.Random(2027)
    asks = make_asks(rng)
    assert len(asks) == 32
    with serve(tmp_path, "--num-shard", "2") as server:
        async with many_clients() as session:
            wanted = await asyncio.gather(*ask_all(session, server, asks))
            blows: list[set[str]] = []
            for _ in range(3):
                running = ask_all(session, server, asks)
                blows += await strike(session, server, rng, running)
                different = [case for case in zip(asks, await asyncio.gather(*running), wanted, strict=True)
                             if case[1] != case[2]]
                assert not different
            await until_idle(session, server.url)
            assert await metric(session, server.url, "penstock_group_restarts") == len(blows)
            assert await metric(session, server.url, "penstock_replays") >= sum(map(len, blows))
    assert [kind for kind in KINDS if sum(kind in hit for hit in blows) < 3] == []
