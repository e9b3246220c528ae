"""A model of another server, behind one that has its keys and limits: real ones, started as users do."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.bench.programs.children import free_port
from tests.e2e.server import Server, running, serve
from tests.paths import DEMO_MODEL

pytestmark = pytest.mark.slow

PROMPT = {"prompt": "def main():", "max_tokens": 24, "seed": 3, "temperature": 0.9}


def accounts(folder: Path) -> list[str]:
    """The flags of a server that keeps accounts."""
    (folder / "prices.yaml").write_text("currency: USD\n")
    return ["--data-dir", str(folder / "data"), "--prices", str(folder / "prices.yaml")]


@pytest.fixture
def pair(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Yields the front, and the server whose model it has as `far`."""
    port, nobody = free_port(), free_port()
    with serve(tmp_path_factory.mktemp("other"), "--api-key", "sk-far", "--threads", "1") as other:
        models = [{"name": "near", "model_id": str(DEMO_MODEL), "kv_memory": "64MiB"},
                  {"name": "far", "url": [f"http://127.0.0.1:{nobody}", other.url], "model": str(DEMO_MODEL),
                   "api_key_env": "FAR_KEY"}]
        (tmp_path / "models.yaml").write_text(json.dumps({"models": models, "aliases": {"any": "far"}}))
        command = [str(Path(sys.executable).with_name("text-generation-launcher")), "--hostname", "127.0.0.1",
                   "--models", str(tmp_path / "models.yaml"), "--port", str(port), "--api-key", "ours",
                   "--threads", "1", *accounts(tmp_path)]
        with running(tmp_path, command, port, {"FAR_KEY": "sk-far"}) as front:
            yield front, other


def test_a_gateway_needs_no_shards(tmp_path: Path) -> None:
    port, nobody = free_port(), free_port()
    models = [{"name": "far", "url": f"http://127.0.0.1:{nobody}"}]
    (tmp_path / "models.yaml").write_text(json.dumps({"models": models}))
    command = [str(Path(sys.executable).with_name("text-generation-launcher")), "--hostname", "127.0.0.1",
               "--models", str(tmp_path / "models.yaml"), "--port", str(port), *accounts(tmp_path)]
    with running(tmp_path, command, port) as gateway:
        request = urllib.request.Request(f"{gateway.url}/v1/completions", json.dumps(PROMPT).encode(),
                                         {"content-type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as failure:
            urllib.request.urlopen(request)
        assert (failure.value.code, f"127.0.0.1:{nobody}" in failure.value.read().decode()) == (502, True)
        with urllib.request.urlopen(f"{gateway.url}/v1/usage") as response:
            assert json.load(response) == {"object": "list", "data": [], "budget": None}
        assert len(gateway.processes()) == 1
        assert gateway.terminate() == 0


async def ask(session: aiohttp.ClientSession, server: Server, key: str, **body: Any) -> tuple[int, bytes, Any]:
    async with session.post(f"{server.url}/v1/completions", json={**PROMPT, **body},
                            headers={"authorization": f"Bearer {key}"}) as response:
        return response.status, await response.read(), response.headers


async def test_a_front_answers_as_the_other_server_does(pair: tuple[Server, Server]) -> None:
    front, other = pair
    async with aiohttp.ClientSession() as session:
        texts = []
        for server, key, model in ((other, "sk-far", str(DEMO_MODEL)), (front, "ours", "any"), (front, "ours", "near")):
            status, told, headers = await ask(session, server, key, model=model)
            assert status == 200, told
            texts.append(json.loads(told)["choices"][0]["text"])
            assert headers.get("penstock-source") == (other.url if model == "any" else None)
        assert texts[1:] == texts[:1] * 2
        streams = [(await ask(session, server, key, model=model, stream=True))[1].split(b"\n\n")
                   for server, key, model in ((other, "sk-far", str(DEMO_MODEL)), (front, "ours", "far"))]
        assert [len(stream) for stream in streams] == [len(streams[0])] * 2
        assert (await ask(session, front, "sk-far", model="far"))[0] == 401
        async with session.get(f"{front.url}/v1/models") as response:
            rows = {each["id"]: each for each in (await response.json())["data"]}
        async with session.get(f"{front.url}/v1/usage", headers={"authorization": "Bearer ours"}) as response:
            used = {row["model"]: (row["requests"], row["tokens"]["output"]) for row in (await response.json())["data"]}
        assert used == {"far": (2, 48), "near": (1, 24)}
        assert (rows["far"]["state"], rows["far"]["source"]) == ("ready", other.url)
    log = front.log.read_text()
    assert "failed_sources=" in log
    assert "sk-far" not in log
    assert not [each for each in front.processes() if "sk-far" in " ".join(each.cmdline())]
