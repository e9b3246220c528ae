"""Hostile adapters, given to a server whose other clients are to notice nothing."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from penstock.protos import penstock_pb2 as pb
from penstock.protos import services
from tests.adapter_files import make_adapter
from tests.e2e.hostile_adapters import HOSTILE, Hostile
from tests.e2e.server import Server, free_port, serve
from tests.paths import DEMO_MODEL

pytestmark = [pytest.mark.slow, pytest.mark.alone]
KEY = "secret"
GOOD = {"inputs": "a", "parameters": {"adapter_id": "good", "max_new_tokens": 2}}
RPC_CODES = (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)  # the last is 424
MAX_PAUSE = 1.0
"""Seconds between two tokens of a stream beside all that."""
ADAPTER_MEMORY = 64 << 20
MOST_GROWTH = 64 << 20
"""Of a shard beside the memory of adapters: heaps with gaps, and the matrices of the one that is read."""


@dataclass
class Attacked:
    """A server, and a good adapter's folder, of which hostile ones are made."""

    server: Server
    rpc_port: int
    folder: Path
    good: Path
    names: Iterator[int] = field(default_factory=itertools.count)

    def post(self, path: str, body: object, timeout: float = 30) -> tuple[int, str]:
        request = urllib.request.Request(self.server.url + path, json.dumps(body).encode(), {
            "content-type": "application/json", "authorization": f"Bearer {KEY}"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    @contextmanager
    def watched(self) -> Iterator["Watched"]:
        """Somebody else's streams, in a process of its own."""
        found = self.folder / "longest"
        found.write_text("0")
        process = subprocess.Popen([sys.executable, "-m", "tests.e2e.pause_watch", self.server.url, KEY, str(found)])
        try:
            yield Watched(process, found)
        finally:
            process.kill()
            process.wait()


@dataclass
class Watched:
    """What somebody else has seen of the server."""

    process: subprocess.Popen[bytes]
    found: Path

    @property
    def longest(self) -> float:
        """The seconds of the longest pause. Fails if a stream broke off."""
        assert self.process.poll() is None
        return float(self.found.read_text() or 0)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder, port = tmp_path_factory.mktemp("h"), free_port()
    good = make_adapter(folder / "good", DEMO_MODEL, 4, targets=["q_proj", "down_proj"])
    with serve(folder, "--num-shard", "2", "--api-key", KEY, "--allow-runtime-adapters", "--grpc-port", str(port),
               "--max-adapter-memory", str(ADAPTER_MEMORY), "--lora-adapters", f"good={good}") as server:
        yield Attacked(server, port, folder, good)


def refusal(text: str) -> str:
    """The sentence of an error: one line, not a traceback, not a book."""
    error = json.loads(text)["error"]
    sentence = str(error["message"] if isinstance(error, dict) else error)
    assert "Traceback" not in sentence
    assert "\n" not in sentence
    assert 10 < len(sentence) < 10_000
    return sentence


def ask_by_rpc(attacked: Attacked, name: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{attacked.rpc_port}") as channel:
        request = pb.GenerateRequest(inputs="a", parameters=pb.Parameters(adapter_id=name, max_new_tokens=2))
        call = services.stub(channel, pb).Generate.future(
            request, timeout=30, metadata=[("authorization", f"Bearer {KEY}")])
        assert call.code() in RPC_CODES, call.details()


def attack(attacked: Attacked, hostile: Hostile) -> None:
    number = next(attacked.names)
    name = f"h{number}"
    folder = hostile.make(attacked.good, attacked.folder / name)
    status, text = attacked.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
    if status == 400:
        refusal(text)
    else:
        assert status == 200, text
        status, text = attacked.post("/generate", {"inputs": "a", "parameters": {"adapter_id": name,
                                                                                 "max_new_tokens": 2}})
        if status != 200:
            assert status in (422, 424), text
            refusal(text)
        ask_by_rpc(attacked, name)
        status, text = attacked.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 2})
        assert status in (200, 400, 424), text
        assert attacked.post("/v1/unload_lora_adapter", {"lora_name": name})[0] == 200
    shutil.rmtree(folder)


def test_a_sentence_each_and_nobody_else_notices(attacked: Attacked, every_case: bool) -> None:
    announced = int(re.findall(r"at most (\d+) MiB of memory", attacked.server.log.read_text())[-1]) << 20
    attacked.post("/generate", GOOD)
    shards = {rank: shard.memory_info().rss for rank, shard in attacked.server.shards().items()}
    pids = {process.pid for process in attacked.server.processes()}

    @settings(max_examples=300 if every_case else 80, deadline=None, database=None, derandomize=True,
              phases=[Phase.explicit, Phase.generate],
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example])
    @given(HOSTILE)
    def attacks(hostile: Hostile) -> None:
        begin = time.monotonic()
        attack(attacked, hostile)
        assert time.monotonic() - begin < 10, hostile
        assert watched.longest < MAX_PAUSE, hostile
        [router] = attacked.server.children("router")
        assert router.memory_info().rss < announced, hostile

    with attacked.watched() as watched:
        attacks()
        longest = watched.longest
    assert {process.pid for process in attacked.server.processes()} == pids, "nobody died"
    for rank, shard in attacked.server.shards().items():
        assert shard.memory_info().rss < shards[rank] + ADAPTER_MEMORY + MOST_GROWTH
    begin = time.monotonic()
    assert attacked.post("/tokenize", {"inputs": "a"})[0] == 200
    assert attacked.post("/generate", GOOD)[0] == 200
    assert time.monotonic() - begin < 2
    print(f"the longest pause: {longest:.3f} s; the router: "
          f"{attacked.server.children('router')[0].memory_info().rss >> 20} of {announced >> 20} MiB")
