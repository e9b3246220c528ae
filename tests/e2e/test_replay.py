"""Recorded answers of all kinds are computed again by another number of shards, and one changed bit of a weight is
found."""

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.adapter_files import make_adapter
from tests.e2e.client import many_clients
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve
from tests.e2e.test_groups import mixed
from tests.paths import DEMO_MODEL

FEW, MANY = 60, 500
AT_ONCE = 32


def asked(rng: random.Random, number: int) -> list[tuple[str, dict[str, Any]]]:
    """Bodies of all routes: greedy and sampled by drawn seeds, stops, penalties, grammars, an adapter, several answers,
    beams, whole and streamed."""
    bodies: list[tuple[str, dict[str, Any]]] = []
    for index, ask in enumerate(mixed(rng, number, longest=24)):
        parameters = ask.parameters
        if index % 3:
            parameters.pop("seed", None)  # one is drawn, which the name of the answer has
        if index % 5 == 0:
            parameters["adapter_id"] = "one"
        prompt = source(rng, 2)
        bodies.append((
            ("/generate", {"inputs": ask.inputs, "parameters": parameters}),
            ("/generate_stream", {"inputs": ask.inputs, "parameters": parameters}),
            ("/", {"inputs": ask.inputs, "parameters": parameters}),
            ("/v1/completions", {"prompt": prompt, "n": 2, "max_tokens": 9, "logprobs": 1}),
            ("/v1/completions", {"prompt": prompt, "max_tokens": 9, "stream": True, "temperature": 0.8}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "max_tokens": 9}),
            ("/v1/messages", {"messages": [{"role": "user", "content": prompt}], "max_tokens": 9, "model": "demo"}),
            ("/generate", {"inputs": prompt, "parameters": {"max_new_tokens": 9, "best_of": 2, "do_sample": True}}),
        )[index % 8])
    return bodies


async def recorded(url: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The receipts of answers to bodies, some of them at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def ask(session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with places, session.post(url + path, json={**body, "receipt": True}) as response:
            text = await response.text()
        assert response.status == 200, text
        if "event: receipt" in text:
            text = text.rpartition("event: receipt\ndata: ")[2].partition("\n")[0]
        answer = json.loads(text)
        receipt: dict[str, Any] = (answer[0] if isinstance(answer, list) else answer)["receipt"]
        return receipt

    async with many_clients() as session:
        return await asyncio.gather(*(ask(session, path, body) for path, body in bodies))


def replayed(server: Server, file: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("penstock")), "replay", str(file), "--url", server.url, "--verify"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_answers_are_computed_again_elsewhere(tmp_path: Path, every_case: bool) -> None:
    number = MANY if every_case else FEW
    make_adapter(tmp_path / "one", DEMO_MODEL, seed=1, strength=0.5)
    flags = ["--lora-adapters", f"one={tmp_path / 'one'}"]
    file = tmp_path / "receipts.jsonl"
    with serve(tmp_path, *flags) as server:
        receipts = await recorded(server.url, asked(random.Random(4), number))
        file.write_text("".join(f"{json.dumps(receipt)}\n" for receipt in receipts))
    with serve(tmp_path, *flags, "--num-shard", "2", "--speculate", "4") as server:
        result = await asyncio.to_thread(replayed, server, file)
        print(result.stdout)
        assert result.returncode == 0, result.stdout + result.stderr
        assert f"{number} of {number} answers are equal" in result.stdout

    changed = shutil.copytree(DEMO_MODEL, tmp_path / "changed")
    flip_one_bit(changed / "model.safetensors")
    with serve(tmp_path, *flags, model=changed) as server:
        result = await asyncio.to_thread(replayed, server, file)
        assert result.returncode == 1, result.stdout + result.stderr
        assert f"0 of {number} answers are equal" in result.stdout
        assert "names an answer of another model" in result.stdout


def flip_one_bit(weights: Path) -> None:
    """Flips the lowest bit of a number of the last tensor."""
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1
    weights.write_bytes(content)
