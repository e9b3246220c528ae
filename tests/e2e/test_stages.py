"""A server whose shards have a part of the layers each answers as one shard does, in all that requests may ask for."""

import asyncio
import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.bench.programs.children import free_port
from tests.e2e.client import Answer, many_clients, scrape, stream
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve
from tests.e2e.test_kill_marathon import make_asks

SCHEMA = {"type": "object", "properties": {"mark": {"type": "integer", "minimum": 0, "maximum": 10}},
          "required": ["mark"]}

COMMON = ("--speculate", "4")


async def details(session: aiohttp.ClientSession, server: Server, inputs: str, **parameters: Any) -> Any:
    """The answer with all that is told of it, but how much of it was guessed."""
    body = {"inputs": inputs, "parameters": {"details": True, "max_new_tokens": 20, **parameters}}
    async with session.post(f"{server.url}/generate", json=body) as response:
        assert response.status == 200, await response.text()
        reply = await response.json()
    assert {reply["details"].pop(name) >= 0 for name in ("drafted_tokens", "accepted_tokens")} == {True}
    return reply


async def everything(server: Server) -> list[Any]:
    """The answers to requests of all kinds at once, sixteen of them twice, for what is cached of the first."""
    rng = random.Random(5)
    asks = make_asks(rng, 16, longest=90)
    repeated = "for name in names:\n    print(name)\n" * 4
    async with many_clients() as session:
        answers: list[Answer] = []
        for _ in range(2):
            answers += await asyncio.gather(*(
                stream(session, server.url, ask.inputs, **ask.parameters) for ask in asks))
        told = await asyncio.gather(
            details(session, server, source(rng, 2), decoder_input_details=True, top_n_tokens=3),
            details(session, server, "def open(path):", do_sample=True, seed=9, watermark=True, temperature=0.9),
            details(session, server, "{", grammar={"type": "json", "value": SCHEMA}, do_sample=True, seed=3),
            details(session, server, "x = ", grammar={"type": "regex", "value": "[a-z]{3,9}[0-9]"}),
            details(session, server, repeated, max_new_tokens=60),
            details(session, server, source(rng, 40), top_n_tokens=2, frequency_penalty=0.3, repetition_penalty=1.1),
            details(session, server, "def close(", num_beams=4, num_return_sequences=4, length_penalty=2.0),
            details(session, server, "y = ", num_beams=3, num_return_sequences=2, repetition_penalty=1.2,
                    grammar={"type": "regex", "value": "[a-z]{3,9}[0-9]"}))
    return [*map(asdict, answers), *told]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What one shard answers."""
    with serve(tmp_path_factory.mktemp("one"), *COMMON) as server:
        return asyncio.run(everything(server))


@pytest.mark.parametrize("flags", [
    pytest.param(("2", "--pipeline-parallel-size", "2"), id="two stages",
                 marks=[pytest.mark.slow, pytest.mark.every_case]),
    pytest.param(("2", "--pipeline-parallel-size", "2", "--pipeline-depth", "1"), id="one step at a time",
                 marks=[pytest.mark.slow, pytest.mark.every_case]),
    pytest.param(("4", "--pipeline-parallel-size", "2"), id="two stages of two ranks", marks=pytest.mark.slow),
    pytest.param(("4", "--pipeline-parallel-size", "4"), id="four stages", marks=pytest.mark.slow),
    pytest.param(("4", "--pipeline-parallel-size", "2", "--master-port", ""), id="by torch.distributed",
                 marks=pytest.mark.slow)])
async def test_stages_answer_as_one_shard(
    tmp_path: Path, flags: tuple[str, ...], expected: list[Any]
) -> None:
    """Stages of several ranks, more of them, and by torch.distributed; stages of one rank with --every-case, for
    tests/shard/test_bits_stages.py has these in the quick suite."""
    ported = [flag or str(free_port()) for flag in flags]
    with serve(tmp_path, *COMMON, "--num-shard", *ported) as server:
        found = await everything(server)
        async with many_clients() as session, session.get(f"{server.url}/info") as response:
            assert response.status == 200
    assert json.dumps(found) == json.dumps(expected)


@pytest.mark.slow
async def test_little_memory(tmp_path: Path, server: Server) -> None:
    """Sequences are preempted; each shard has the same bytes as one of two that split every layer."""
    rng = random.Random(8)
    asks = make_asks(rng, 24, longest=120)

    async def answers(server: Server) -> tuple[list[Answer], float]:
        async with many_clients() as session:
            found = await asyncio.gather(*(stream(session, server.url, ask.inputs, **ask.parameters) for ask in asks))
            return found, (await scrape(session, server.url))["penstock_preemptions"]

    expected, _ = await answers(server)
    flags = ["--num-shard", "2", "--kv-memory", str(3 << 20), "--max-total-tokens", "1024"]
    with serve(tmp_path, *flags, "--pipeline-parallel-size", "2") as staged:
        found, num_preempted = await answers(staged)
    assert found == expected
    assert num_preempted > 0
