"""A server within the memory of a cgroup: it announces no more than it can hold, and outlives the loss of some."""

import asyncio
import os
import random
import re
import signal
from pathlib import Path

import aiohttp
import psutil
import pytest

from tests.cgroups import MemoryCgroup, memory_cgroup
from tests.e2e.client import Answer, events, generate, many_clients, metric, stream
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve
from tests.processes import is_alive
from tests.tiny_models import make_tiny

MIB = 1 << 20


DEMO_KV_TOKEN = 8 * 2 * 32 * 2 * 2
"""Bytes of a token's keys and values on one of two shards of the demo model: of 8 layers, 2 heads of 32 numbers."""


def kept_memory(shard: psutil.Process) -> int:
    """The bytes that a shard has touched of the memory that outlives it."""
    lines = Path(f"/proc/{shard.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssShmem:"))


async def info(session: aiohttp.ClientSession, server: Server) -> dict[str, int]:
    async with session.get(f"{server.url}/info") as response:
        return dict(await response.json())


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_all_memory_that_was_announced_is_used_within_600_mb(tmp_path: Path) -> None:
    rng = random.Random(4)
    with memory_cgroup(600 * MIB) as cgroup, serve(tmp_path, "--num-shard", "2", cgroup=cgroup) as server:
        first = server.shards()
        async with many_clients() as session:
            announced = await info(session, server)
            capacity, longest = announced["max_batch_total_tokens"], min(1800, announced["max_total_tokens"] - 24)
            prompts = [source(rng, 180) for _ in range(-(-capacity // 1000))]
            answers = await asyncio.gather(*(
                stream(session, server.url, prompt, truncate=longest, max_new_tokens=24) for prompt in prompts))
            touched = [kept_memory(shard) for shard in server.shards().values()]
            assert min(touched) >= 0.9 * capacity * DEMO_KV_TOKEN
            assert await metric(session, server.url, "penstock_group_restarts") == 0
        print(f"{capacity} tokens announced, {cgroup.used / MIB:.0f} MiB used, KV memory {touched}")
        assert all(len(answer.ids) == 24 or answer.finish_reason == "eos_token" for answer in answers)
        assert server.shards() == first
        assert cgroup.num_killed == 0
        assert f" GiB within the limit of {cgroup.folder}" in server.log.read_text()


KV_TOKEN = 64 << 10
"""Bytes of a token's keys and values in the model below: much beside what the processes take."""
LEFT = 200 * MIB
"""What is left for keys and values and all steps, after another process took the rest."""


def fat_model(folder: Path) -> Path:
    """A model of 4 layers, each with 16 keys and 16 values of 128 numbers for a token."""
    return make_tiny(folder, heads=16, kv_heads=16, head_dim=128, layers=4, vocab=8192, context=4096,
                     has_tokenizer=True)


async def crash(server: Server, cgroup: MemoryCgroup, limit: int) -> None:
    """A fault of a shard's own, after which nothing in its memory is trusted; and before any shard is started again,
    another process takes what the limit no longer allows."""
    group = server.shards()
    os.kill(server.process.pid, signal.SIGSTOP)
    group[0].send_signal(signal.SIGSEGV)
    group[1].send_signal(signal.SIGKILL)
    while any(is_alive(shard) for shard in group.values()):
        await asyncio.sleep(0.02)
    cgroup.set_limit(limit)
    os.kill(server.process.pid, signal.SIGCONT)


async def broken(session: aiohttp.ClientSession, server: Server, inputs: str, started: asyncio.Event) -> str:
    """The error that ends a stream, which has begun when `started` is set."""
    received = []
    async for event in events(session, server.url, inputs, max_new_tokens=1000, truncate=2500):
        received.append(event)
        started.set()
    return str(received[-1].get("error"))


async def short(session: aiohttp.ClientSession, server: Server, seed: int, started: asyncio.Event) -> Answer:
    received = []
    async for event in events(session, server.url, source(random.Random(seed), 4), max_new_tokens=300, do_sample=True,
                              seed=seed, temperature=0.9):
        received.append(event)
        started.set()
    return Answer(tuple(event["token"]["id"] for event in received), (), received[-1]["generated_text"],
                  received[-1]["details"]["finish_reason"])


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_group_that_finds_less_memory_serves_what_fits(tmp_path: Path) -> None:
    model, long = fat_model(tmp_path / "model"), source(random.Random(1), 300)
    flags = ["--num-shard", "2", "--max-total-tokens", "3600", "--kv-memory", str(4000 * KV_TOKEN // 2)]
    with memory_cgroup(1400 * MIB) as cgroup, serve(tmp_path, *flags, model=model, cgroup=cgroup) as server:
        [router] = server.children("router")
        async with many_clients() as session:
            at_start = await info(session, server)
            unused = asyncio.Event()
            wanted = await asyncio.gather(*(short(session, server, seed, unused) for seed in range(3)))
            started = [asyncio.Event() for _ in range(4)]
            running = [asyncio.create_task(short(session, server, seed, started[seed])) for seed in range(3)]
            failing = asyncio.create_task(broken(session, server, long, started[3]))
            await asyncio.gather(*(each.wait() for each in started))
            while min(map(kept_memory, server.shards().values())) < 0.95 * 2000 * KV_TOKEN:  # reserved in idle time
                await asyncio.sleep(0.02)
            await crash(server, cgroup, cgroup.used - 4000 * KV_TOKEN + LEFT)
            assert re.fullmatch(
                r"Request failed during generation: Server error: there are only shards left or started again with "
                r"KV memory for \d+ tokens, and this request needs more", await failing)
            assert await asyncio.gather(*running) == wanted
            now = await info(session, server)
            assert 360 <= now["max_total_tokens"] == now["max_batch_total_tokens"] < 2500
            assert at_start["max_total_tokens"] == 3600
            with pytest.raises(AssertionError, match="inputs"):
                await generate(session, server.url, long, max_new_tokens=2)
            assert server.children("router") == [router]

            router.kill()
            server.wait_until_healthy()
            assert (await info(session, server))["max_total_tokens"] == now["max_total_tokens"]
            assert await short(session, server, 2, unused) == wanted[2]
        assert now["max_input_tokens"] == now["max_total_tokens"] - 1
