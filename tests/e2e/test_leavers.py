"""Clients that leave, at any moment: their memory returns at once, nothing of them stays, the next is served."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import events, generate, many_clients, scrape, stream
from tests.e2e.prompts import source
from tests.e2e.server import EXACT_MEMORY, Server, serve

NUM_LEAVERS = 100
LONGEST_STAY = 3.0
MAX_GROWTH = 2_000_000
"""Bytes that a process may grow by while more of them come and leave."""


async def leave(
    session: aiohttp.ClientSession, server: Server, rng: random.Random, is_streaming: bool, moments: Counter[str]
) -> None:
    """Ask for a long answer, go away before it ends; note what had come by then."""
    inputs = source(rng, rng.randint(1, 20))
    parameters: dict[str, Any] = {
        "max_new_tokens": 1000, "do_sample": True, "temperature": 1.2, "seed": rng.getrandbits(32)}
    num_tokens = 0
    try:
        async with asyncio.timeout(rng.uniform(0, LONGEST_STAY)):
            if is_streaming:
                async for _ in events(session, server.url, inputs, **parameters):
                    num_tokens += 1
            else:
                await generate(session, server.url, inputs, **parameters)
    except TimeoutError:
        moments[("amid tokens" if num_tokens else "before a token") if is_streaming else "plain"] += 1


async def hundred_leavers(session: aiohttp.ClientSession, server: Server, seed: int) -> Counter[str]:
    rng, moments = random.Random(seed), Counter[str]()
    await asyncio.gather(*(leave(session, server, random.Random(rng.getrandbits(32)), index % 3 > 0, moments)
                           for index in range(NUM_LEAVERS)))
    return moments


async def idle(session: aiohttp.ClientSession, server: Server) -> dict[str, float]:
    """The series as soon as no block is held; the test's own time limit is the only one."""
    while (series := await scrape(session, server.url))['penstock_kv_blocks{state="used"}']:
        pass
    return series


def num_steps(series: dict[str, float]) -> float:
    return sum(series.get(f'tgi_batch_inference_count{{method="{method}"}}', 0) for method in ("prefill", "decode"))


def resident(server: Server) -> dict[str, int]:
    """Bytes of each process."""
    processes = [*server.children("router"), *server.children("shard")]
    return {f"{process.cmdline()[3]} {process.pid}": process.memory_info().rss for process in processes}


@pytest.mark.slow
async def test_a_hundred_leavers_leave_nothing(tmp_path: Path) -> None:
    moments, sizes = Counter[str](), list[dict[str, int]]()
    # The system gives KV memory as it is first written to: so little of it is all in use after the first hundred.
    with serve(tmp_path, "--num-shard", "2", "--kv-memory", "8MiB", environment=EXACT_MEMORY) as server:
        async with many_clients() as session:
            undisturbed = await generate(session, server.url, "import os\n", max_new_tokens=20)
            for seed in range(4):
                moments += await hundred_leavers(session, server, seed)
                series = await idle(session, server)
                sizes.append(resident(server))
            assert await generate(session, server.url, "import os\n", max_new_tokens=20) == undisturbed
    growth = {name: min(size[name] for size in sizes[2:]) - max(size[name] for size in sizes[:2]) for name in sizes[0]}
    print(dict(moments), {name: [f"{size[name] / 1e6:.1f} MB" for size in sizes] for name in growth})
    assert moments.keys() == {"plain", "before a token", "amid tokens"}
    assert series["tgi_batch_current_size"] == series["tgi_queue_size"] == series["penstock_kv_wasted_slots"] == 0
    assert max(growth.values()) <= MAX_GROWTH, growth


@pytest.mark.slow
@pytest.mark.alone
async def test_blocks_return_with_the_steps_in_flight(tmp_path: Path) -> None:
    """Not one more step is planned for those who left; the most that still run were under way."""
    depth = 2
    with serve(tmp_path, "--num-shard", "2", "--pipeline-depth", str(depth)) as server:
        async with many_clients() as session:
            rng = random.Random(5)
            prompts = [source(rng, 10) for _ in range(8)]
            clients = [asyncio.create_task(ask(session, server.url, prompt, max_new_tokens=1000, seed=1))
                       for ask, prompt in zip([generate, stream] * 4, prompts, strict=True)]
            while (await scrape(session, server.url))["tgi_batch_current_size"] < len(clients):
                assert not any(client.done() for client in clients)
            held = await scrape(session, server.url)
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            # How long the news of them take is the machine's matter; from the news on, no step may be planned.
            while (news := await scrape(session, server.url))["tgi_batch_current_size"]:
                pass
            after = await idle(session, server)
            assert held['penstock_kv_blocks{state="used"}'] >= len(clients)
            assert (await generate(session, server.url, prompts[0], max_new_tokens=5)).ids
    print(f"{num_steps(after) - num_steps(news):.0f} steps came back after the news, "
          f"{num_steps(after) - num_steps(held):.0f} after the clients had left")
    assert num_steps(after) - num_steps(news) <= depth
    assert num_steps(after) < 1000
    assert after['tgi_request_failure{err="dropped"}'] == len(clients)
