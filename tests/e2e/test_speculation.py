"""A server that guesses tokens gives the answers of one that does not: ids, logprobs and text, amid kills of shards."""

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from tests.adapter_files import make_adapter
from tests.e2e.client import many_clients, scrape, until_idle
from tests.e2e.server import Server, serve
from tests.faults.load import KINDS, PER_KIND, Ask, make_asks, read_answer, with_adapters
from tests.tiny_models import DEMO_MODEL, make_tiny

AT_ONCE = 12
"""How many requests are in the server at a time."""
FLAGS = ("--kv-memory", "64MiB", "--enable-prefill-logprobs", "--max-best-of", "4")


@pytest.mark.slow
@pytest.mark.alone  # how much is guessed depends on what steps cost
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("flags", "draft"), [
    pytest.param(("--dtype", "bfloat16", "--num-shard", "2"), None, id="bfloat16 on 2 shards"),
    pytest.param(("--quantize", "int4", "--num-shard", "2"), None, id="int4 on 2 shards",
                 marks=pytest.mark.every_case),
    pytest.param(("--dtype", "bfloat16", "--num-shard", "2"), "itself", id="bfloat16 on 2 shards, drafted by itself"),
    pytest.param(("--dtype", "float32", "--num-shard", "2"), "stranger", id="float32 on 2, drafted by a stranger"),
])
async def test_guesses_change_no_answer(
    tmp_path: Path, flags: tuple[str, ...], draft: str | None, every_case: bool
) -> None:
    drafting = () if draft is None else ("--draft-model-id", str(draft_model(draft, tmp_path)))
    rounds, num_kills = (16, 10) if every_case else (1, 2)
    rng = random.Random(str(flags))
    adapters = [make_adapter(tmp_path / name, DEMO_MODEL, seed=seed).name for seed, name in enumerate(("one", "two"))]
    flags += (*FLAGS, "--lora-adapters", ",".join(f"{name}={tmp_path / name}" for name in adapters))
    asks = [ask for _ in range(rounds) for ask in with_adapters(make_asks(rng), [None, None, *adapters], rng)]
    assert len(asks) == rounds * len(KINDS) * PER_KIND
    with serve(tmp_path, *flags) as server:
        async with many_clients() as session:
            expected = await answer_all(session, server, asks)
            assert "penstock_accepted_tokens" in await scrape(session, server.url)
    with serve(tmp_path, *flags, "--speculate", "6", *drafting) as server:
        async with many_clients() as session:
            killing = asyncio.create_task(kill(session, server, num_kills))
            answers = await answer_all(session, server, asks)
            repeated = 0
            while not killing.done():  # the last kills come after the last answer
                answers, repeated = await answer_all(session, server, asks[:44]) + answers[44:], repeated + 44
            await killing
            await until_idle(session, server.url)
            metrics = await scrape(session, server.url)
    different = [(str(ask), ours, theirs) for ask, ours, theirs in zip(asks, answers, expected, strict=True)
                 if ours != theirs]
    print(f"{len(asks) + repeated} answers, {metrics['penstock_generated_tokens']:.0f} tokens, of "
          f"{metrics['penstock_drafted_tokens']:.0f} guesses {metrics['penstock_accepted_tokens']:.0f} right, "
          f"{num_kills} kills, {metrics['penstock_replays']:.0f} replays")
    assert not different
    assert metrics["penstock_accepted_tokens"] > len(asks)
    assert metrics["penstock_group_restarts"] == num_kills
    assert metrics['penstock_kv_blocks{state="used"}'] == 0


def draft_model(name: str, folder: Path) -> Path:
    """The demo model itself, or a random one with its tokens."""
    if name == "itself":
        return DEMO_MODEL
    return make_tiny(folder / "stranger", heads=8, kv_heads=4, layers=1, vocab=8192, context=512, has_tokenizer=True)


async def answer_all(session: aiohttp.ClientSession, server: Server, asks: Sequence[Ask]) -> list[object]:
    """The answers, without what may vary."""
    room = asyncio.Semaphore(AT_ONCE)

    async def answer(ask: Ask) -> object:
        async with room, session.post(server.url + ask.path, json=ask.body) as response:
            text = await response.text()
            assert response.status == 200, f"{ask}: {text}"
            return read_answer(ask.is_stream, text)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(answer(ask)) for ask in asks]
    return [task.result() for task in running]


async def kill(session: aiohttp.ClientSession, server: Server, number: int) -> None:
    """Kills a shard, again and again, each time after a while in which requests ran."""
    for index in range(number):
        before = (await scrape(session, server.url))["penstock_generated_tokens"]
        while (await scrape(session, server.url))["penstock_generated_tokens"] < before + 300:
            await asyncio.sleep(0.05)
        shards = server.shards()
        shards[index % len(shards)].send_signal(signal.SIGKILL)
        while (await scrape(session, server.url))["penstock_group_restarts"] <= index:
            await asyncio.sleep(0.05)
