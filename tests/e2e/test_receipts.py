"""Receipts of a real server add up to the time of its steps, whatever befell its groups, and are signed."""

import asyncio
import json
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.router.generation.digests import digest_of_ids
from penstock.system.receipt_signature import verify
from tests.adapter_files import make_adapter
from tests.e2e.asks import Ask
from tests.e2e.client import many_clients, scrape
from tests.e2e.server import serve_groups
from tests.e2e.test_groups import busiest, mixed
from tests.paths import DEMO_MODEL
from tests.signing_keys import make_key

FEW_BLOCKS = "4MiB"
"""Of KV memory: less than the requests of one group need."""


async def answered(session: aiohttp.ClientSession, url: str, ask: Ask) -> dict[str, Any]:
    """A whole answer with its receipt."""
    body = {"inputs": ask.inputs, "parameters": {**ask.parameters, "details": True}, "receipt": True}
    async with session.post(f"{url}/generate", json=body) as response:
        answer: dict[str, Any] = await response.json()
    assert response.status == 200, answer
    return answer


async def explained(session: aiohttp.ClientSession, url: str, answers: list[dict[str, Any]]) -> None:
    """Any of the processes explains all of the answers."""
    for answer in answers:
        async with session.get(f"{url}/explain/{answer['receipt']['id']}") as response:
            told = await response.json()
        assert response.status == 200, told
        assert told["total_seconds"] >= answer["receipt"]["total_us"] / 1e6
        assert told["reasons"], told


def step_seconds(series: dict[str, float]) -> float:
    """The time of all steps that have come back."""
    return sum(value for name, value in series.items() if name.startswith("tgi_batch_inference_duration_sum"))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_receipts_add_up(tmp_path: Path) -> None:
    """With two processes for HTTP, guesses, grammars, adapters, too little memory, and the death of a group."""
    rng = random.Random(3)
    key = make_key(tmp_path / "key.pem")
    make_adapter(tmp_path / "one", DEMO_MODEL, seed=1, strength=0.5)
    asks = mixed(rng, 32, longest=240)
    for ask in asks[1::3]:
        ask.parameters["adapter_id"] = "one"
    router = ["--speculate", "4", "--api-workers", "2", "--receipt-key", str(key),
              "--lora-adapters", f"one={tmp_path / 'one'}"]
    with serve_groups(tmp_path, 2, "--speculate", "4", "--kv-memory", FEW_BLOCKS, router=router) as (server, groups):
        async with many_clients() as session:
            async with session.get(f"{server.url}/receipt-key") as response:
                public_key = (await response.json())["public_key"].encode()
            before = await scrape(session, server.url)
            tasks = [asyncio.create_task(answered(session, server.url, ask)) for ask in asks]
            while (await scrape(session, server.url))["penstock_generated_tokens_total"] < 500:
                await asyncio.sleep(0.05)
            [shard] = (await busiest(session, server, groups)).shards().values()
            shard.send_signal(signal.SIGKILL)
            answers = await asyncio.gather(*tasks)
            await explained(session, server.url, answers)
            after = await scrape(session, server.url)
    tokens: Counter[str] = Counter()
    waits: Counter[str] = Counter()
    for ask, answer in zip(asks, answers, strict=True):
        receipt = answer["receipt"]
        verify(receipt, public_key)
        [told] = receipt["answers"]
        ids = [token["id"] for token in answer["details"]["tokens"]]
        assert (told["sha256"], told["tokens"]) == (digest_of_ids(ids), len(ids))
        assert json.loads(receipt["request"]["body"])["parameters"] == {**ask.parameters, "details": True}
        assert sum(receipt["waits_us"].values()) <= receipt["total_us"]
        tokens.update(receipt["tokens"])
        waits.update(receipt["waits_us"])
    charged = sum(answer["receipt"]["step_us"] for answer in answers) / 1e6
    taken = step_seconds(after) - step_seconds(before)
    print(f"{charged:.3f} s are charged of {taken:.3f}; {dict(tokens)}; {dict(waits)}")
    assert charged == pytest.approx(taken, rel=0.01)
    assert {"replayed", "drafted", "accepted"} <= {name for name, number in tokens.items() if number}
    assert {"preempted", "moved"} <= waits.keys()
