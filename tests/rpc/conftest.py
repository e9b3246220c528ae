"""The real app over a scripted fleet, as in tests/api, with its gRPC server and a client's channel."""

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos import penstock_pb2 as pb
from protos import penstock_pb2_grpc
from router.api.access import Access
from router.api.service import SERVICE
from router.rpc.server import RpcServer
from tests.api.conftest import Server, demo, grammars, server, start, until

__all__ = ["demo", "grammars", "server", "start"]
DRAIN_SECONDS = 30.0
OPEN = Access()


@dataclass
class Rpc:
    """A server, its gRPC address, and a client of it."""

    server: Server
    rpc: RpcServer
    target: str
    channel: grpc.aio.Channel
    stub: Any

    async def generate(self, inputs: str = "Say it", **parameters: Any) -> Any:
        return await self.stub.Generate(request(inputs, **parameters))

    async def stream(self, inputs: str = "Say it", **parameters: Any) -> list[Any]:
        return [event async for event in self.stub.GenerateStream(request(inputs, **parameters))]

    async def until_no_block_is_held(self) -> None:
        """Also by steps that are still in flight."""
        await self.server.until_idle()
        await until(lambda: not self.server.engine._in_flight)
        assert self.server.engine._scheduler.memory.num_held == 0


def request(inputs: str = "Say it", **parameters: Any) -> Any:
    return pb.GenerateRequest(inputs=inputs, parameters=pb.Parameters(**parameters))


async def error_of(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str, str | None]:
    """Code, message and type of the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing = dict(caught.value.trailing_metadata() or ())
    return caught.value.code(), caught.value.details(), trailing.get("error_type")


StartRpc = Callable[..., Awaitable[Rpc]]


@pytest.fixture
async def start_rpc(start: Callable[..., Awaitable[Server]]) -> AsyncIterator[StartRpc]:
    """Starts servers, as `start` does, with gRPC."""
    async with AsyncExitStack() as stack:

        async def start_rpc(
            access: Access = OPEN, tracing: Any = None, certificate: tuple[Path, Path] | None = None,
            options: Any = None, **settings: Any,
        ) -> Rpc:
            started: list[RpcServer] = []

            def add_rpc(app: Any) -> None:
                credentials = None
                if certificate is not None:
                    cert, key = (path.read_bytes() for path in certificate)
                    credentials = grpc.ssl_server_credentials([(key, cert)])
                rpc = RpcServer(app[SERVICE], access, tracing, "127.0.0.1:0", DRAIN_SECONDS, credentials)
                app.cleanup_ctx.append(rpc.run)
                app.on_shutdown.append(rpc.drain)
                started.append(rpc)

            server = await start(access=access, prepare=add_rpc, **settings)
            target = f"127.0.0.1:{started[0].port}"
            if certificate is None:
                channel = grpc.aio.insecure_channel(target, options=options)
            else:
                trust = grpc.ssl_channel_credentials(certificate[0].read_bytes())
                channel = grpc.aio.secure_channel(target, trust, options=options)
            await stack.enter_async_context(channel)
            return Rpc(server, started[0], target, channel, penstock_pb2_grpc.TextGenerationStub(channel))

        yield start_rpc


@pytest.fixture
async def rpc(start_rpc: StartRpc) -> Rpc:
    return await start_rpc()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """That of 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True)
    return cert, key
