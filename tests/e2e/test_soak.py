"""Memory under mixed load: no process takes more than was announced when it started, and none goes on growing.

For longer than in the slow tests: `.venv/bin/pytest -m slow tests/e2e/test_soak.py --soak-seconds 300 -s`
"""

import asyncio
import itertools
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp
import pytest
import torch

from tests.adapter_files import make_adapter
from tests.e2e.client import many_clients, until_idle
from tests.e2e.prompts import source
from tests.e2e.server import EXACT_MEMORY, Server, serve
from tests.faults.load import Ask, make_asks, read_answer, with_adapters
from tests.paths import DEMO_MODEL

MIB = 1 << 20
KV_MEMORY = 8 * MIB
"""Of each shard: 4096 tokens of the demo model, which the first round fills, so that no page is touched for the first
time later."""
MAX_CONCURRENT_REQUESTS = 256
"""More than the requests of the largest round, each of whose choices counts as one."""
MAX_GROWTH = 0.01
NOISE = 2 * MIB
"""What a process may have grown by in any case."""
ALLOWANCE = 16 * MIB
"""What processes that announce nothing, launcher and renderers, may use beyond what they have when first seen."""
SAMPLE_SECONDS = 0.2
SPARE_SECONDS = 600
"""For the last round, and for the fewest there must be on a slow machine."""
WARM_UP = (2, 2)
"""How many rounds' requests come at once at the beginning: heaps and caches get as large then as they ever are."""
MIN_ROUNDS = 4
LONG_PER_ROUND = 4
NUM_ADAPTERS, NUM_IN_MEMORY = 40, 10


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process has in memory, in bytes: all of it, and of that the KV memory, which it shares with nobody but
    its successor."""

    resident: int
    kv: int


def samples(server: Server) -> Iterator[tuple[str, Sample]]:
    """What the processes have in memory now, each by its name."""
    processes = {f"shard-{rank}": process for rank, process in server.shards().items()}
    [processes["router"]] = server.children("router")
    for number, renderer in enumerate(server.children("router.chat.sandbox")):
        processes[f"renderer {number}"] = renderer
    for name, pid in [("launcher", server.process.pid), *((name, each.pid) for name, each in processes.items())]:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        yield name, Sample(*(int(lines[field].split()[0]) * 1024 for field in ("VmRSS", "RssShmem")))


def promises(server: Server) -> dict[str, int]:
    """The bytes that processes announced as the most that they use."""
    found = re.findall(r"INFO (?:penstock\.)?(\S+): at most (\d+) MiB of memory", server.log.read_text())
    return {name: int(number) * MIB for name, number in found}


def long_asks(rng: random.Random) -> list[Ask]:
    return [Ask("long", "/generate_stream", {"inputs": source(rng, 180), "parameters": {
        "truncate": rng.randint(1000, 1900), "max_new_tokens": 30, "top_n_tokens": 3, "details": True}})
        for _ in range(LONG_PER_ROUND)]


async def answer(session: aiohttp.ClientSession, server: Server, ask: Ask) -> None:
    """Asks; raises an error if what comes is no whole answer."""
    async with session.post(server.url + ask.path, json=ask.body) as response:
        text = await response.text()
    assert response.status == 200, text
    read_answer(ask.is_stream, text)


async def soak(
    server: Server, rng: random.Random, seconds: float, adapters: Sequence[str]
) -> list[dict[str, list[Sample]]]:
    """Rounds of requests of every kind, half of them for adapters, for so long at least; returns what the processes had
    in memory in each, the warm-up's among them, and last when nothing ran."""
    rounds: list[dict[str, list[Sample]]] = []
    end = time.monotonic() + seconds

    async def watch() -> None:
        while True:
            for name, sample in samples(server):
                rounds[-1].setdefault(name, []).append(sample)
            await asyncio.sleep(SAMPLE_SECONDS)

    async with asyncio.timeout(seconds + SPARE_SECONDS), many_clients() as session:
        for number in itertools.count():
            if number >= len(WARM_UP) + MIN_ROUNDS and time.monotonic() > end:
                return rounds
            num_sets = WARM_UP[number] if number < len(WARM_UP) else 1
            rounds.append({})
            watching = asyncio.create_task(watch())
            asks = [ask for _ in range(num_sets) for ask in make_asks(rng) + long_asks(rng)]
            asks = with_adapters(asks, [*adapters, *[None] * len(adapters)], rng)
            await asyncio.gather(*(answer(session, server, ask) for ask in asks))
            await until_idle(session, server.url)
            watching.cancel()
            for name, sample in samples(server):
                rounds[-1].setdefault(name, []).append(sample)
    raise AssertionError


@pytest.mark.slow
@pytest.mark.timeout(0)  # `soak` has a limit of its own
async def test_memory_stays_within_what_was_announced(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Of many adapters a few have room at once, and tokens are guessed."""
    seconds = request.config.getoption("soak_seconds")
    names = [f"adapter-{number}" for number in range(NUM_ADAPTERS)]
    for seed, name in enumerate(names):
        make_adapter(tmp_path / name, DEMO_MODEL, 16, seed=seed, dtype=torch.bfloat16)
    weights = (tmp_path / names[0] / "adapter_model.safetensors").stat().st_size
    with serve(tmp_path, "--num-shard", "2", "--kv-memory", str(KV_MEMORY), "--speculate", "4",
               "--lora-adapters", ",".join(f"{name}={tmp_path / name}" for name in names),
               "--max-adapter-memory", str(NUM_IN_MEMORY * weights),
               "--max-concurrent-requests", str(MAX_CONCURRENT_REQUESTS), environment=EXACT_MEMORY) as server:
        at_start, announced = {name: [sample] for name, sample in samples(server)}, promises(server)
        rounds = await soak(server, random.Random(17), seconds, names)
    assert announced.keys() == {"shard-0", "shard-1", "router"}
    steady = rounds[len(WARM_UP):]
    print(f"{len(steady)} rounds, after {len(WARM_UP)} to warm up")
    for name, (*_, last) in rounds[-1].items():
        before = next(each[name][0] for each in (at_start, *rounds) if name in each)
        most = max(sample.resident for each in rounds for sample in each.get(name, ()))
        first, second = halves([each[name][-1].resident for each in steady if name in each])
        print(f"{name}: {before.resident / MIB:.1f} MiB at the start, {last.resident / MIB:.1f} at the end, of which "
              f"keys and values {before.kv / MIB:.1f} and {last.kv / MIB:.1f}; {most / MIB:.1f} at the most, "
              f"{announced.get(name, 0) / MIB:.0f} announced; the second half grew by {second / first - 1:.2%}")
        assert second <= first + max(first * MAX_GROWTH, NOISE)
        assert most <= announced.get(name, before.resident + ALLOWANCE)


def halves(sizes: Sequence[int]) -> tuple[float, float]:
    """The medians of the first half of the rounds and of the second, which share the round of a process that ran in
    one only."""
    middle = len(sizes) // 2
    return median(sizes[:middle] or sizes), median(sizes[middle:])
