"""The GPU's kernels under the whole server: a float32 model answers on them what it answers on the processor's.

Without a GPU they run in Triton's interpreter.
"""

import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch

from penstock.kernels.softmax_gpu import PART
from tests.e2e.client import Answer, events, many_clients, metric, until_idle, whole
from tests.e2e.prompts import source
from tests.e2e.server import free_port, serve
from tests.kernel_sets import HAS_GPU
from tests.tiny_models import make_tiny

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), *[pytest.mark.gpu] * HAS_GPU]

GPU = {"KERNELS": "gpu"}                 # tests/conftest.py asks for the interpreter where there is no GPU
PROCESSOR = {"KERNELS": "cpu"}
NUM_SHARDS = 2 if torch.cuda.device_count() > 1 else 1
"""The interpreters of two shards would want the same cores; tests/shard/test_gpu_kernels.py has two ranks of them."""
STEP_TOKENS = 48
FLAGS = ("--kv-memory", "2MB", "--step-timeout", "60", "--max-batch-prefill-tokens", str(STEP_TOKENS),
         "--enable-prefill-logprobs")
LONG = source(random.Random(1), 12)
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 10, "maximum": 99},
                                           "kind": {"enum": ["a", "b"]}},
          "required": ["age", "kind"], "additionalProperties": False}
SAMPLED = {"do_sample": True, "seed": 5, "temperature": 0.8, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.2}


def native(inputs: str, **parameters: Any) -> tuple[str, dict[str, Any]]:
    return "/generate", {"inputs": inputs, "parameters": {
        "max_new_tokens": 6, "details": True, "top_n_tokens": 2, **parameters}}


ASKS = [
    native("def open(path):", decoder_input_details=True),
    native("import os\n", **SAMPLED),
    native("class Path:", grammar={"type": "json", "value": SCHEMA}, max_new_tokens=30),
    native("Call ", grammar={"type": "regex", "value": "[0-9]{3}-[0-9]{3}"}, do_sample=True, seed=6),
    native(LONG, seed=7, do_sample=True, typical_p=0.9, watermark=True, decoder_input_details=True),
    ("/v1/completions", {"prompt": "def walk(path):", "max_tokens": 4, "echo": True, "logprobs": 2, "temperature": 0}),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its vocabulary is sampled from by two programs of the kernel, the second with little to do."""
    return make_tiny(tmp_path_factory.mktemp("model"), heads=2, kv_heads=2, head_dim=16, layers=1, hidden=32,
                     intermediate=64, vocab=PART + 512, has_tokenizer=True)


async def post(session: aiohttp.ClientSession, url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(url + path, json=body) as response:
        reply = await response.json()
    assert response.status == 200, reply
    return {key: value for key, value in reply.items() if key not in ("id", "created")}


async def answers(url: str, asks: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """To all of them at once."""
    async with many_clients() as session:
        return await asyncio.gather(*(post(session, url, *ask) for ask in asks))


def is_close(found: Any, wanted: Any) -> bool:
    """Equal, but for the last digits of logprobs."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(is_close(found[key], wanted[key]) for key in found)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(is_close, found, wanted))
    if isinstance(found, float) and isinstance(wanted, float):
        return math.isclose(found, wanted, abs_tol=1e-4)
    return bool(found == wanted)


@pytest.mark.every_case
async def test_answers_are_those_of_the_processors_kernels(model: Path, tmp_path: Path) -> None:
    with serve(tmp_path, *FLAGS, model=model, environment=PROCESSOR) as server:
        text = (await answers(server.url, ASKS[:1]))[0]["generated_text"]
        asks = [*ASKS, native("def open(path):", stop=[text[len(text) // 2 :]])]
        wanted = await answers(server.url, asks)
    assert wanted[2]["details"]["finish_reason"] == "eos_token"
    assert json.loads(wanted[2]["generated_text"]).keys() == {"age", "kind"}
    assert len(wanted[4]["details"]["prefill"]) > STEP_TOKENS
    assert all(logprob < 0 for logprob in wanted[5]["choices"][0]["logprobs"]["token_logprobs"][1:])
    assert wanted[-1]["details"]["finish_reason"] == "stop_sequence"
    with serve(tmp_path, *FLAGS, model=model, environment=GPU) as server:
        async with many_clients() as session, session.get(f"{server.url}/info") as response:
            assert (await response.json())["numerics"].startswith("gpu-")
        found = await answers(server.url, asks)
    different = [(one, other) for one, other in zip(found, wanted, strict=True) if not is_close(one, other)]
    assert not different


async def stream(session: aiohttp.ClientSession, url: str, number: int, come: list[int]) -> Answer:
    """An answer in full; each of its events is noted in `come`."""
    parameters = {"max_new_tokens": 8, **([{}, SAMPLED | {"seed": number}, {"repetition_penalty": 1.3}][number])}
    received = []
    async for event in events(session, url, source(random.Random(number), 1 + 2 * number), **parameters):
        received.append(event)
        come.append(number)
    return whole(received)


@pytest.mark.every_case
async def test_no_bit_of_an_answer_changes_when_a_shard_is_killed(model: Path, tmp_path: Path) -> None:
    flags = (*FLAGS, "--deterministic", "--num-shard", str(NUM_SHARDS))
    with serve(tmp_path, *flags, model=model, environment=GPU) as server:
        async with many_clients() as session:
            async with session.get(f"{server.url}/info") as response:
                info = await response.json()
            assert info["deterministic"] is True
            assert "-deterministic/float32" in info["numerics"]
            wanted = await asyncio.gather(*(stream(session, server.url, number, []) for number in range(3)))
            come: list[int] = []
            running = [asyncio.create_task(stream(session, server.url, number, come)) for number in range(3)]
            while len(set(come)) < 3:
                await asyncio.sleep(0.01)
            server.shards()[NUM_SHARDS - 1].send_signal(signal.SIGKILL)
            num_hit = sum(not task.done() for task in running)
            assert num_hit >= 2
            assert await asyncio.gather(*running) == wanted
            await until_idle(session, server.url)
            assert await metric(session, server.url, "penstock_group_restarts") == 1
            assert await metric(session, server.url, "penstock_replays") >= num_hit


def command(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of the package, to its end."""
    return subprocess.run([str(Path(sys.executable).with_name(name)), *arguments], capture_output=True, text=True,
                          check=False, timeout=100, env=os.environ | variables)


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_without_a_gpu_none_is_served_with(model: Path, tmp_path: Path) -> None:
    refused = command("text-generation-launcher", "--model-id", str(model), "--hostname", "127.0.0.1", "--port",
                      str(free_port()), "--device", "cuda")
    assert refused.returncode == 1
    [line] = [line for line in refused.stderr.splitlines() if line.startswith("shard 0: ")]
    assert line.startswith("shard 0: --device cuda: torch ")
    assert "Traceback" not in refused.stdout + refused.stderr
    with serve(tmp_path, *FLAGS, model=model) as server, urllib.request.urlopen(f"{server.url}/info") as response:
        info = json.load(response)
    assert info["model_device_type"] == "cpu"
    assert info["numerics"].startswith(("cpu-", "reference/"))
