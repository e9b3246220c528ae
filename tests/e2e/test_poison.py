"""A request that kills whatever shard computes it ends alone; those that ran beside it are answered as ever."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tokenizers import Tokenizer

from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS
from tests.e2e.client import Answer, events, many_clients, scrape, stream, until_running
from tests.e2e.prompts import source
from tests.e2e.server import DEMO_MODEL, Server, serve

MARKER = " PILCROW"
"""One token, rare enough."""
NOT_MEASURED = 4096
"""Shards run the token ids below this when they measure."""
MOST_DEATHS = 9
"""How often one request among 16 may kill its group."""
NUM_TOKENS = 240
"""Of each answer beside it: so many that all run when the request comes that kills, on a busy machine, too."""


async def ask_all(session: aiohttp.ClientSession, server: Server, prompts: Sequence[str]) -> list[Answer]:
    """Half are greedy, half sampled, some of both with a penalty."""
    return await asyncio.gather(*(
        stream(session, server.url, prompt, max_new_tokens=NUM_TOKENS, ignore_eos=True, do_sample=index % 2 == 1,
               seed=index, repetition_penalty=1.2 if index % 3 else 1.0)
        for index, prompt in enumerate(prompts)))


def num_deaths(server: Server) -> int:
    """How often the group was lost; the launcher says so each time."""
    return server.log.read_text().count("starting all shards again")


async def poison(session: aiohttp.ClientSession, server: Server, name: str) -> tuple[int, dict[str, str]]:
    body = {"inputs": f"def {name}{MARKER}(self):", "parameters": {"max_new_tokens": 20}}
    async with session.post(f"{server.url}/generate", json=body) as response:
        return response.status, await response.json()


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has shards die of a prompt that holds the marker."""
    [marker] = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json")).encode(MARKER).ids
    assert marker >= NOT_MEASURED, "or no shard would start"
    monkeypatch.setenv("SHARD_DIE_ON_TOKEN", str(marker))


@dataclass
class Crowd:
    """A server that runs requests, and what they were answered before."""

    session: aiohttp.ClientSession
    server: Server
    prompts: list[str]
    undisturbed: list[Answer]
    running: asyncio.Task[list[Answer]]


@asynccontextmanager
async def crowd(tmp_path: Path, seed: int, size: int) -> AsyncIterator[Crowd]:
    """Serves on one shard, which starts again in half the time of two, and yields once `size` requests run that were
    all answered before."""
    rng = random.Random(seed)
    prompts = [source(rng, rng.randint(1, 10)) for _ in range(size)]
    with serve(tmp_path) as server:
        async with many_clients() as session:
            undisturbed = await ask_all(session, server, prompts)
            running = asyncio.create_task(ask_all(session, server, prompts))
            await until_running(session, server.url, size)
            yield Crowd(session, server, prompts, undisturbed, running)


async def num_replays(crowd: Crowd) -> float:
    """Returns how many requests were computed again after deaths. Those that kill have three each without the others'
    help; so many more than that are of others, which ran when the group first died."""
    series = await scrape(crowd.session, crowd.server.url)
    print(f"{series['penstock_replays']:.0f} replays")
    return series["penstock_replays"]


@pytest.mark.slow
async def test_one_that_kills_among_16_costs_few_deaths(tmp_path: Path, marked: None) -> None:
    async with crowd(tmp_path, seed=6, size=15) as others:
        session, server = others.session, others.server
        status, error = await poison(session, server, "a")
        assert (status, error["error_type"]) == (424, "generation")
        # By shards that were started after the last death, so it is logged.
        assert await others.running == others.undisturbed
        assert await num_replays(others) >= len(others.prompts) + MAX_SOLO_DEATHS
        deaths = num_deaths(server)
        assert 3 <= deaths <= MOST_DEATHS
        status, error = await poison(session, server, "a")
        assert (status, error["error_type"]) == (424, "generation")
        assert "refused for 600 s" in error["error"]
        assert await ask_all(session, server, others.prompts[:1]) == others.undisturbed[:1]
        assert num_deaths(server) == deaths
    print(f"{deaths} deaths")


@pytest.mark.every_case
@pytest.mark.slow
async def test_requests_that_kill_end_alone(tmp_path: Path, marked: None) -> None:
    async with crowd(tmp_path, seed=3, size=8) as others:
        session, server = others.session, others.server
        errors = await asyncio.gather(*(poison(session, server, name) for name in ("a", "b")))
        assert await others.running == others.undisturbed
        assert await num_replays(others) >= len(others.prompts) + 2 * MAX_SOLO_DEATHS
        assert await ask_all(session, server, others.prompts[:1]) == others.undisturbed[:1]
    for status, error in errors:
        assert (status, error["error_type"]) == (424, "generation")
        assert "3 times in a row" in error["error"]


@pytest.mark.every_case
@pytest.mark.slow
async def test_a_request_that_kills_amid_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """The shards die of a token that was sampled, and its client has what came before."""
    parameters: dict[str, Any] = {"max_new_tokens": 60, "do_sample": True, "temperature": 1.5, "seed": 8}
    prompt, prompts = source(random.Random(4), 2), [source(random.Random(5), 4)]
    async with many_clients() as session:
        answer = await stream(session, server.url, prompt, **parameters)
        undisturbed = await ask_all(session, server, prompts)
    place = next(place for place in range(5, 59) if answer.ids[place] >= NOT_MEASURED)
    assert not set(undisturbed[0].ids) & {answer.ids[place]}
    monkeypatch.setenv("SHARD_DIE_ON_TOKEN", str(answer.ids[place]))
    with serve(tmp_path, "--num-shard", "2") as dying:
        async with many_clients() as session:
            others = asyncio.create_task(ask_all(session, dying, prompts))
            received = [event async for event in events(session, dying.url, prompt, **parameters)]
            assert await others == undisturbed
    assert received.pop()["error_type"] == "generation"
    assert tuple(event["token"]["id"] for event in received) == answer.ids[:place + 1]
