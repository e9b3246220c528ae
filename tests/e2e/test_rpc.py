"""gRPC beside HTTP on the demo model: the same bits, the client that the contract shows, the end."""

import asyncio
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from penstock.protos import penstock_pb2 as pb
from penstock.protos import services
from penstock.router.generation.float32 import nearest_float32
from tests.e2e.server import Server, free_port, serve

pytestmark = pytest.mark.slow
SOURCE = "import os\n\n\ndef walk(path):\n"
CONTRACT = Path(__file__).parents[2] / "protos/penstock.proto"


@dataclass
class Both:
    """A server and the port of its gRPC API."""

    server: Server
    port: int

    def post(self, parameters: dict[str, Any]) -> Any:
        body = orjson.dumps({"inputs": SOURCE, "parameters": parameters})
        request = urllib.request.Request(f"{self.server.url}/generate", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            return orjson.loads(response.read())

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"127.0.0.1:{self.port}")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    port = free_port()
    with serve(tmp_path_factory.mktemp("rpc"), "--num-shard", "2", "--dtype", "float32", "--grpc-port", str(port),
               "--enable-prefill-logprobs") as server:
        yield Both(server, port)


@pytest.mark.parametrize("parameters", [
    {"max_new_tokens": 30},
    {"max_new_tokens": 40, "do_sample": True, "seed": 11, "temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.1,
     "top_n_tokens": 3, "stop": ["zzz"], "presence_penalty": 0.3, "frequency_penalty": 0.2, "min_p": 0.01}])
def test_the_bits_of_http(both: Both, parameters: dict[str, Any]) -> None:
    asked = {**parameters, "details": True, "decoder_input_details": True}
    http = both.post(asked)
    with both.channel() as channel:
        stub = services.stub(channel, pb)
        answer = stub.Generate(pb.GenerateRequest(inputs=SOURCE, parameters=pb.Parameters(**asked)), timeout=120)
        streamed = list(stub.GenerateStream(
            pb.GenerateRequest(inputs=SOURCE, parameters=pb.Parameters(**parameters)), timeout=120))
    expected = [(token["id"], token["text"], nearest_float32(token["logprob"])) for token in http["details"]["tokens"]]
    assert len(expected) > 1
    assert [(token.id, token.text, token.logprob) for token in answer.details.tokens] == expected
    assert [(event.token.id, event.token.text, event.token.logprob) for event in streamed] == expected
    assert answer.generated_text == streamed[-1].generated_text == http["generated_text"]
    assert [token.logprob for token in answer.details.prefill[1:]] == [
        nearest_float32(token["logprob"]) for token in http["details"]["prefill"][1:]]
    assert [[(token.id, token.logprob) for token in top.tokens] for top in answer.details.top_tokens] == [
        [(token["id"], nearest_float32(token["logprob"])) for token in top]
        for top in http["details"].get("top_tokens", [])]


def test_client_that_the_contract_shows(both: Both) -> None:
    block = "\n".join(re.findall(r"^//     (.*)$", CONTRACT.read_text(), re.MULTILINE))
    assert "localhost:3001" in block
    program = block.replace("localhost:3001", f"127.0.0.1:{both.port}")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout


async def test_sigterm_drains(tmp_path: Path) -> None:
    port = free_port()
    with serve(tmp_path, "--num-shard", "2", "--grpc-port", str(port)) as server:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub, health = services.stub(channel, pb), health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
                pass                     # the port is open a moment before the shards are there
            call = stub.GenerateStream(pb.GenerateRequest(
                inputs=SOURCE, parameters=pb.Parameters(max_new_tokens=400, ignore_eos=True, details=True)))
            events = [await call.read()]
            server.process.terminate()
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            while (event := await call.read()) is not grpc.aio.EOF:
                events.append(event)
        last = events[-1]
        assert (last.index, last.details.generated_tokens) == (400, 400)
        assert await asyncio.to_thread(server.process.wait, 30) == 0
