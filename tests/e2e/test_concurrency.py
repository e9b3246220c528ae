"""Many clients of mixed lengths at once on two shards, some of them compared with their own runs alone on one."""

import asyncio
import itertools
import random
from pathlib import Path

import aiohttp
import pytest

from penstock.kernels import native
from tests.e2e.client import Answer, many_clients, stream
from tests.e2e.server import Server, serve

NUM_CLIENTS = 64


def make_requests(count: int, seed: int) -> list[tuple[str, int, int]]:
    """Texts, the number of their last tokens that are the prompt, 1 to 1,500, and 1 to 400 tokens to generate."""
    rng = random.Random(seed)
    words = ["file", "list", " return", " self", "(x)", "\n", " import", "def", " the", " of"]
    lengths = [1, 1500, *(int(1500 ** rng.random()) for _ in range(count - 2))]
    return [("".join(rng.choices(words, k=2 * length)), length, rng.choice([1, 16, 64, 400])) for length in lengths]


async def ask(session: aiohttp.ClientSession, server: Server, index: int, request: tuple[str, int, int]) -> Answer:
    """Half of them greedy, half sampled."""
    text, length, max_new_tokens = request
    return await stream(session, server.url, text, truncate=length, max_new_tokens=max_new_tokens,
                        do_sample=index % 2 == 1, seed=index)


def compared(every_case: bool) -> list[int]:
    """As many greedy ones as sampled ones, the shortest and the longest prompt among them: every fourth, or second."""
    return [index for index in range(NUM_CLIENTS) if index % (4 if every_case else 8) < 2]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("path", "dtype"), list(zip(
    native.processor_paths(), itertools.cycle(["bfloat16", "float32"]), strict=False)))
async def test_64_clients_equal_their_solo_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, dtype: str, every_case: bool
) -> None:
    if path != native.processor_paths()[0] and not every_case:
        pytest.skip("--every-case also runs the paths of other processors")
    monkeypatch.setenv("KERNELS_PATH", path)
    requests = make_requests(NUM_CLIENTS, seed=1)
    (tmp_path / "one").mkdir()
    async with many_clients() as session:
        with serve(tmp_path, "--num-shard", "2", "--dtype", dtype) as server:
            together = await asyncio.gather(*(ask(session, server, *request) for request in enumerate(requests)))
        with serve(tmp_path / "one", "--num-shard", "1", "--dtype", dtype) as server:
            alone = {index: await ask(session, server, index, requests[index]) for index in compared(every_case)}
            async with session.get(f"{server.url}/info") as response:
                assert (await response.json())["numerics"].startswith(f"cpu-{path}/{dtype}/")
    assert {index: together[index] for index in alone} == alone
    assert max(len(answer.ids) for answer in together) == 400
