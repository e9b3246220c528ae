"""Several models in one server: each answers as a server of its own does, whatever befalls the others meanwhile."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from penstock.bench.programs.children import free_port
from tests.adapter_files import make_adapter
from tests.cgroups import unlimited_cgroup
from tests.e2e.prompts import source
from tests.e2e.server import Server, running, serve
from tests.paths import DEMO_MODEL
from tests.tiny_embedders import make_embedder

pytestmark = pytest.mark.slow

NUM_CLIENTS = 12
FEW, MANY = 200, 1000
MEMORY = 6 * 10**9
"""Bytes that the server has, where a cgroup can be made."""
KEY = {"authorization": "Bearer key"}
PROMPTS = [source(random.Random(number), 2)[:60] for number in range(6)]
Answer = tuple[str, str]
"""The model and the prompt of a request."""


def body_of(model: str, prompt: str) -> tuple[str, dict[str, Any]]:
    if model == "vectors":
        return "/v1/embeddings", {"model": model, "input": prompt}
    return "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 12, "seed": 7, "temperature": 0.8}


async def ask(session: aiohttp.ClientSession, url: str, model: str, prompt: str) -> object:
    """Returns the text or the vector; whatever else comes is an error of the test."""
    path, body = body_of(model, prompt)
    async with session.post(url + path, json=body, headers=KEY) as response:
        content = await response.json()
        assert response.status == 200, (model, content)
        return content["data"][0]["embedding"] if model == "vectors" else content["choices"][0]["text"]


async def change(session: aiohttp.ClientSession, url: str, path: str, **body: object) -> None:
    async with session.post(url + path, json=body, headers=KEY) as response:
        assert response.status == 200, await response.text()


async def alone(url: str, model: str) -> dict[Answer, object]:
    async with aiohttp.ClientSession() as session:
        return {(model, prompt): await ask(session, url, model, prompt) for prompt in PROMPTS}


@contextmanager
def serve_several(tmp_path: Path, vectors: Path) -> Iterator[Server]:
    """Starts a server of all three, of which `exact` and `vectors` are loaded on demand, and `tuned` is an adapter."""
    models = [{"name": "chat", "model_id": str(DEMO_MODEL), "kv_memory": "64MiB",
               "lora_adapters": f"tuned={tmp_path / 'tuned'}"},
              {"name": "exact", "model_id": str(DEMO_MODEL), "kv_memory": "64MiB", "dtype": "float32"},
              {"name": "vectors", "model_id": str(vectors)}]
    (tmp_path / "m.yaml").write_text(json.dumps({"models": models, "aliases": {"best": "chat"}}))
    port = free_port()
    command = [str(Path(sys.executable).with_name("text-generation-launcher")), "--models", str(tmp_path / "m.yaml"),
               "--hostname", "127.0.0.1", "--port", str(port), "--api-key", "key", "--threads", "1",
               "--keep-weights", "1GiB"]
    with unlimited_cgroup() as cgroup:
        if cgroup is not None:
            cgroup.set_limit(MEMORY)
        with running(tmp_path, command, port, cgroup=cgroup) as server:
            yield server


def shards(server: Server, *words: str) -> list[psutil.Process]:
    """The shards whose settings have all of these words."""
    return [process for process in server.children("shard") if all(word in process.cmdline()[-3] for word in words)]


def kill(server: Server, *words: str) -> None:
    for process in shards(server, *words):
        process.send_signal(signal.SIGKILL)


async def disturb(session: aiohttp.ClientSession, server: Server) -> None:
    """Kills, unloads, loads and moves an alias."""
    url = server.url
    kill(server, '"dtype": "float32"')
    await change(session, url, "/v1/alias_model", alias="best", targets={"exact": 1.0})
    kill(server, "/shard-0", '"kv_memory"')
    await change(session, url, "/v1/unload_model", model="vectors")
    await change(session, url, "/v1/load_model", model="vectors")
    await change(session, url, "/v1/unload_model", model="vectors")
    kill(server, '/v"')  # it rests, or is woken by a request
    await change(session, url, "/v1/load_model", model="vectors")
    [vectors] = shards(server, '/v"')
    niceness = {os.getpriority(os.PRIO_PROCESS, thread.id) for thread in vectors.threads()}
    assert niceness == {os.getpriority(os.PRIO_PROCESS, 0)}
    await change(session, url, "/v1/alias_model", alias="best", targets={"chat": 0.5, "exact": 0.5})
    await change(session, url, "/v1/unload_model", model="exact")
    await change(session, url, "/v1/alias_model", alias="best", targets={"chat": 1.0})


def test_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    vectors = make_embedder(tmp_path / "v")
    make_adapter(tmp_path / "tuned", DEMO_MODEL, seed=1, strength=0.5)
    expected: dict[Answer, object] = {}
    flags = ("--threads", "1", "--api-key", "key")
    tuned = ("--lora-adapters", f"tuned={tmp_path / 'tuned'}")
    for names, path, more in ((("chat", "tuned"), DEMO_MODEL, tuned), (("exact",), DEMO_MODEL, ("--dtype", "float32")),
                              (("vectors",), vectors, ())):
        with serve(tmp_path, *flags, *more, model=path) as server:
            for name in names:
                expected |= asyncio.run(alone(server.url, name))
    assert [expected["tuned", each] for each in PROMPTS] != [expected["chat", each] for each in PROMPTS]
    number = MANY if request.config.getoption("--every-case") else FEW

    async def run(server: Server) -> int:
        chosen = random.Random(1)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as session:
            disturbing = asyncio.create_task(disturb(session, server))
            done = 0

            async def client() -> None:
                nonlocal done
                while done < number or not disturbing.done():
                    model, prompt = chosen.choice(["chat", "tuned", "exact", "vectors", "best"]), chosen.choice(PROMPTS)
                    found = await ask(session, server.url, model, prompt)
                    known = [expected[each, prompt] for each in (["chat", "exact"] if model == "best" else [model])]
                    assert found in known, (model, prompt)
                    done += 1

            async with asyncio.TaskGroup() as group:
                for _ in range(NUM_CLIENTS):
                    group.create_task(client())
            await disturbing
            return done

    with serve_several(tmp_path, vectors) as server:
        assert asyncio.run(run(server)) >= number
