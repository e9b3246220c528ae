"""Many clients of mixed lengths at once, each compared with its own run alone."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.e2e.client import Answer, many_clients, stream
from tests.e2e.server import serve


def make_requests(count: int, seed: int) -> list[tuple[str, int, int]]:
    """Texts, the number of their last tokens that are the prompt, 1 to 1,500, and 1 to 400 tokens to generate."""
    rng = random.Random(seed)
    words = ["file", "list", " return", " self", "(x)", "\n", " import", "def", " the", " of"]
    lengths = [1, 1500, *(int(1500 ** rng.random()) for _ in range(count - 2))]
    return [("".join(rng.choices(words, k=2 * length)), length, rng.choice([1, 16, 64, 400])) for length in lengths]


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_64_clients_equal_their_solo_runs(tmp_path: Path) -> None:
    requests = make_requests(64, seed=1)
    with serve(tmp_path, "--num-shard", "2", "--dtype", "float32") as server:
        async with many_clients() as session:

            async def run(request: tuple[str, int, int]) -> Answer:
                text, length, max_new_tokens = request
                return await stream(session, server.url, text, truncate=length, max_new_tokens=max_new_tokens)

            together = await asyncio.gather(*(run(request) for request in requests))
            alone = [await run(request) for request in requests]
    assert [answer.ids for answer in together] == [answer.ids for answer in alone]
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert max(len(answer.ids) for answer in together) == 400
