"""A long prompt amid streams: no stream waits for more than about one full step at a time."""

import asyncio
import itertools
import random
import statistics
import time
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.client import events, many_clients, scrape
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve

BUDGET = 256
NUM_STREAMS = 16
PROMPT = 1500
NUM_FULL_STEPS, REST = divmod(PROMPT, BUDGET - NUM_STREAMS)
NUM_ARRIVALS = 15
MAX_RATIO = 1.5
"""Of a full step to the median one: a chunk late in the prompt attends to more than an early one."""


async def consume(session: aiohttp.ClientSession, server: Server, inputs: str, times: list[float]) -> None:
    async for _ in events(session, server.url, inputs, max_new_tokens=1400, do_sample=True, temperature=1.5, seed=1):
        times.append(time.perf_counter())


async def arrive(
    session: aiohttp.ClientSession, server: Server, inputs: str, streams: list[list[float]]
) -> tuple[list[list[float]], float]:
    """A long prompt comes: the gaps that its full steps made in each stream, in their order, and how many steps it
    took."""
    before, begin = await scrape(session, server.url), time.perf_counter()
    [_] = [event async for event in events(session, server.url, inputs, truncate=PROMPT, max_new_tokens=1)]
    end, after = time.perf_counter(), await scrape(session, server.url)
    steps = 'tgi_batch_inference_count{method="prefill"}'
    gaps = []
    for times in streams:
        during = [later - earlier for earlier, later in itertools.pairwise(times) if earlier < end and later > begin]
        gaps.append(longest_run(during))
    return gaps, after[steps] - before[steps]


def longest_run(gaps: list[float]) -> list[float]:
    """Returns the full steps among gaps: before the first and with the last of the prompt come steps of fewer tokens,
    so they are those in succession that took longest."""
    runs = [gaps[begin : begin + NUM_FULL_STEPS] for begin in range(max(1, len(gaps) - NUM_FULL_STEPS + 1))]
    return max(runs, key=sum)


def test_a_slow_step_is_told_and_noise_is_not() -> None:
    noisy = [[[1.0] * index + [9.0] + [1.0] * (NUM_FULL_STEPS - 1 - index)] for index in (0, 3, 3)]
    assert max(step_ratios([*noisy, *[[[1.0] * NUM_FULL_STEPS]] * 2])) == 1
    assert step_ratios([[[1.0, 1.0, 1.0, 2.0, 1.0, 1.0]]] * 2)[3] == 2
    assert longest_run([0.1, 0.2, *range(1, NUM_FULL_STEPS + 1), 0.3]) == [*range(1, NUM_FULL_STEPS + 1)]


def step_ratios(arrivals: list[list[list[float]]]) -> list[float]:
    """Returns, for each full step, how much longer than the median step of its arrival it took, in the median of all
    arrivals: what else the machine does makes now this step longer and now that one."""
    ratios = [[gap / statistics.median(gaps) for gap in gaps] for streams in arrivals for gaps in streams]
    return [statistics.median(step) for step in zip(*ratios, strict=True)]


@pytest.mark.slow
@pytest.mark.alone
async def test_a_long_prompt_holds_no_stream_up(tmp_path: Path) -> None:
    rng = random.Random(11)
    # Two shards would take both of a small machine's processors, and wait for what the router and the clients do there.
    with serve(tmp_path, "--num-shard", "1", "--max-batch-prefill-tokens", str(BUDGET)) as server:
        async with many_clients() as session:
            streams: list[list[float]] = [[] for _ in range(NUM_STREAMS)]
            running = [asyncio.create_task(consume(session, server, source(rng, 6), times)) for times in streams]
            while not all(streams):
                await asyncio.sleep(0.01)
            arrivals = [await arrive(session, server, source(rng, 300), streams) for _ in range(NUM_ARRIVALS)]
            assert not any(task.done() for task in running)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    assert {num_steps for _, num_steps in arrivals} == {NUM_FULL_STEPS + (REST > 0)}
    assert {len(gaps) for streams, _ in arrivals for gaps in streams} == {NUM_FULL_STEPS}, "a step gave no token"
    ratios = step_ratios([streams for streams, _ in arrivals])
    shown = f"full steps over the median one: {', '.join(f'{ratio:.2f}' for ratio in ratios)}"
    print(shown)
    assert max(ratios) <= MAX_RATIO, shown
