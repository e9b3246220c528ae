"""The real app over a scripted fleet, as in tests/router/api, with its gRPC server and a client's channel."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.launcher.config import LauncherConfig
from penstock.launcher.launch import main
from penstock.protos import penstock_pb2 as pb
from penstock.protos import services
from penstock.router.api.http.access import Access
from penstock.router.rpc.server import RpcServer, add_rpc
from tests.eventually import until
from tests.router.api.conftest import Server, demo, grammars, server, start
from tests.router.api.http.test_access import certificate

__all__ = ["certificate", "demo", "grammars", "server", "start"]
DRAIN_SECONDS = 30.0
OPEN = Access()


@dataclass
class Rpc:
    """A server, its gRPC address, and a client of it."""

    server: Server
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
            options: Any = None, hostname: str = "127.0.0.1", **settings: Any,
        ) -> Rpc:
            cert, key = certificate or (None, None)
            config = replace(
                LauncherConfig.from_options(main.make_context("launcher", ["--model-id", "m"]).params),
                hostname=hostname, grpc_port=0, ssl_certfile=cert, ssl_keyfile=key)
            started: list[RpcServer] = []

            server = await start(
                access=access, **settings,
                prepare=lambda app: started.append(add_rpc(app, config, access, tracing, DRAIN_SECONDS)))
            target = f"[{hostname}]:{started[0].port}" if ":" in hostname else f"{hostname}:{started[0].port}"
            if cert is None:
                channel = grpc.aio.insecure_channel(target, options=options)
            else:
                trust = grpc.ssl_channel_credentials(cert.read_bytes())
                channel = grpc.aio.secure_channel(target, trust, options=options)
            await stack.enter_async_context(channel)
            return Rpc(server, target, channel, services.stub(channel, pb))

        yield start_rpc


@pytest.fixture
async def rpc(start_rpc: StartRpc) -> Rpc:
    return await start_rpc()
