"""A KV memory that holds a quarter of what all clients need: requests wait and give way, answers don't change."""

import asyncio
import random
import statistics
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import Answer, many_clients, metric, scrape, stream
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve

NUM_CLIENTS = 64
BLOCK_SIZE = 16
SAMPLE_SECONDS = 0.2
MAX_WASTE = 0.04


def make_requests(seed: int) -> list[tuple[str, dict[str, Any]]]:
    """Prompts of 60 to 160 tokens, answers of up to 330; half greedy, half sampled."""
    rng = random.Random(seed)
    requests = []
    for index in range(NUM_CLIENTS):
        parameters: dict[str, Any] = {"truncate": rng.randint(60, 160), "max_new_tokens": rng.randint(230, 330)}
        if index % 2:
            parameters |= {"do_sample": True, "seed": index, "temperature": 0.9, "repetition_penalty": 1.1}
        requests.append((source(rng, 32), parameters))
    return requests


async def watch(session: aiohttp.ClientSession, server: Server, samples: list[dict[str, float]]) -> None:
    while True:
        samples.append(await scrape(session, server.url))
        await asyncio.sleep(SAMPLE_SECONDS)


@pytest.mark.every_case
@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_quarter_of_the_memory_is_enough(tmp_path: Path, server: Server) -> None:
    """The answers are those of a server that has room for all clients at once."""
    requests = make_requests(seed=7)
    need = sum(parameters["truncate"] + parameters["max_new_tokens"] for _, parameters in requests)
    samples: list[dict[str, float]] = []
    async with many_clients() as session:

        async def answers(server: Server) -> list[Answer]:
            return await asyncio.gather(*(
                stream(session, server.url, prompt, **parameters) for prompt, parameters in requests))

        before = await metric(session, server.url, "penstock_preemptions")
        with_room = await answers(server)
        assert await metric(session, server.url, "penstock_preemptions") == before
        with serve(tmp_path, "--num-shard", "2", "--max-batch-total-tokens", str(need // 4)) as small:
            watching = asyncio.create_task(watch(session, small, samples))
            together = await answers(small)
            watching.cancel()
            idle = await scrape(session, small.url)
    busy = [sample for sample in samples if sample["tgi_batch_current_size"] >= 8]
    waste = [sample["penstock_kv_wasted_slots"] / (BLOCK_SIZE * sample['penstock_kv_blocks{state="used"}'])
             for sample in busy]
    print(f"{need} tokens needed, {need // 4 // BLOCK_SIZE * BLOCK_SIZE} held; "
          f"{idle['penstock_preemptions']:.0f} preemptions; waste of {len(waste)} samples: "
          f"mean {statistics.mean(waste):.2%}, largest {max(waste):.2%}; "
          f"{statistics.mean(sample['tgi_batch_current_size'] for sample in busy):.1f} sequences ran")
    assert together == with_room
    assert idle["penstock_preemptions"] >= 20
    assert idle['penstock_kv_blocks{state="used"}'] == 0
    assert idle['penstock_kv_blocks{state="free"}'] == need // 4 // BLOCK_SIZE
    assert idle["penstock_kv_wasted_slots"] == 0
    assert statistics.mean(waste) <= MAX_WASTE
