"""Adapters on a real server: each answers for itself, whatever runs beside it, and after its shards have died."""

import asyncio
from pathlib import Path

import pytest

from tests.adapter_files import make_adapter
from tests.e2e.client import Answer, generate, many_clients, scrape
from tests.e2e.server import Server, serve
from tests.paths import DEMO_MODEL

NAMES = ("one", "two", "three")
PROMPT = "def open(path):"


def flags(folder: Path) -> list[str]:
    """Two shards with room for two of the three adapters at once."""
    for seed, name in enumerate(NAMES):
        make_adapter(folder / name, DEMO_MODEL, seed=seed, strength=0.5)
    weights = (folder / NAMES[0] / "adapter_model.safetensors").stat().st_size
    return ["--num-shard", "2", "--lora-adapters", ",".join(f"{name}={folder / name}" for name in NAMES),
            "--max-adapter-memory", str(int(2.5 * weights))]  # half of float32, twice the rank of 8


async def ask(server: Server, *names: str | None, num_tokens: int = 60) -> list[Answer]:
    async with many_clients() as session:
        return await asyncio.gather(*(
            generate(session, server.url, PROMPT, max_new_tokens=num_tokens, do_sample=True, seed=1,
                     **({} if name is None else {"adapter_id": name})) for name in names))


@pytest.mark.slow
async def test_each_adapter_answers_for_itself(tmp_path: Path) -> None:
    with serve(tmp_path, *flags(tmp_path / "adapters")) as server:
        alone = {name: (await ask(server, name))[0] for name in (None, *NAMES)}
        assert len({answer.ids for answer in alone.values()}) == 4
        mixed = [*alone] * 4
        assert await ask(server, *mixed) == [alone[name] for name in mixed]
        async with many_clients() as session:
            series = await scrape(session, server.url)
        assert series["penstock_adapter_evictions"] > 0

        task = asyncio.create_task(ask(server, *mixed))
        await asyncio.sleep(0.2)
        server.shards()[0].kill()
        assert await task == [alone[name] for name in mixed]
        server.children("router")[0].kill()
        await asyncio.to_thread(server.wait_until_healthy)
        assert await ask(server, "two") == [alone["two"]]
