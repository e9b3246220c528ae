"""The server of the gRPC API: its port, the standard services, and its end with the app's."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import grpc
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio
from grpc_reflection.v1alpha import reflection

from penstock.contract.pooling import Task
from penstock.protos import penstock_pb2, services
from penstock.router.api.http.access import Access
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.generation.services import SERVICES, Services
from penstock.router.rpc import kserve, tei
from penstock.router.rpc.calls import Calls
from penstock.router.rpc.service import SERVICE_NAME, TextGeneration
from penstock.system import addresses
from penstock.system.settings import ServerSettings

if TYPE_CHECKING:
    from penstock.router.tracing.middleware import Tracing

log = logging.getLogger(__name__)

_KEEP_ALIVE_MS = 30_000
"""Milliseconds between pings; a client that vanished is noticed within twice this."""
_FAREWELL_SECONDS = 0.2
"""Seconds that the last bytes of answers get to leave once no call runs; then connections are broken off."""
_Status = health_pb2.HealthCheckResponse


class RpcServer:
    """Listens at `address`, which is `HOST:PORT`; `credentials` is None for no TLS. Other processes of the server may
    listen there, too, if it `is_shared`.

    `drain_seconds` is what calls that run get in the end.
    """

    def __init__(
        self, models: Services, access: Access, tracing: "Tracing | None", address: str, drain_seconds: float,
        credentials: grpc.ServerCredentials | None = None, is_shared: bool = False,
    ) -> None:
        service = models.first
        self._calls = Calls(access, service.metrics, tracing, service.around.journal, service.around.signer)
        has_teis = models.are_several or Task.GENERATE not in service.facts.tasks
        names = {SERVICE_NAME: True, kserve.SERVICE_NAME: True}
        if has_teis:
            names |= {full: models.are_several or tei.is_for(service.facts, name) for name, full in tei.NAMES.items()}
        self._health = HealthService(service.engine, names)
        self._server = grpc.aio.server(options=[
            ("grpc.max_receive_message_length", service.limits.payload_limit),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", _KEEP_ALIVE_MS),
            ("grpc.so_reuseport", int(is_shared))])  # a port that is taken is an error
        services.serve(self._server, penstock_pb2, TextGeneration(models, self._calls))
        kserve.serve(self._server, models, self._calls)
        if has_teis:
            tei.serve(self._server, models, self._calls)
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._server)
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._address = address
        self._drain_seconds = drain_seconds
        self._credentials = credentials
        self.port = 0
        """The port that it listens at, known once it does."""

    async def run(self, app: web.Application) -> AsyncIterator[None]:
        """Serves until the app ends, as a part of its `cleanup_ctx`. Raises OSError if it can't listen there."""
        try:
            if self._credentials is None:
                self.port = self._server.add_insecure_port(self._address)
            else:
                self.port = self._server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"cannot serve gRPC at {self._address}: {error}") from error
        await self._health.tell()
        await self._server.start()
        log.info("Serving gRPC at %s", self._address)
        following = asyncio.create_task(self._health.follow(), name="health")
        yield
        following.cancel()
        await self._server.stop(None)

    async def drain(self, app: web.Application) -> None:
        """Takes no more calls and waits for those that run, as a part of the app's `on_shutdown`.

        It does not wait for those who watch the health or reflect, who would stay for as long as they may.
        """
        await self._health.end()
        stopping = asyncio.create_task(self._server.stop(self._drain_seconds))
        idle = asyncio.create_task(self._calls.until_idle())
        await asyncio.wait([stopping, idle], return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        await asyncio.wait([stopping], timeout=_FAREWELL_SECONDS)
        await self._server.stop(None)
        await stopping


def add_rpc(
    app: web.Application, config: ServerSettings, access: Access, tracing: "Tracing | None", drain_seconds: float
) -> RpcServer:
    """Serves gRPC beside the app's routes, from its start to its end. The certificate files are known to be good."""
    credentials = None
    if config.ssl_certfile is not None and config.ssl_keyfile is not None:
        credentials = grpc.ssl_server_credentials([(config.ssl_keyfile.read_bytes(), config.ssl_certfile.read_bytes())])
    assert config.grpc_port is not None
    address = addresses.joined(config.hostname, config.grpc_port)
    server = RpcServer(app[SERVICES], access, tracing, address, drain_seconds, credentials,
                       is_shared=config.api_workers > 1)
    app.cleanup_ctx.append(server.run)
    app.on_shutdown.append(server.drain)
    return server


class HealthService:
    """Says SERVING while a request would be computed now, as `/readyz` does; never again once `end` was called.
    Services that the model is not for never serve."""

    def __init__(self, engine: AnyEngine, services: Mapping[str, bool]) -> None:
        """`services` tells by their full names whether the model is for them."""
        self.servicer = aio.HealthServicer()
        self._engine = engine
        self._services = {"": True, **services}

    async def follow(self) -> None:
        """Tells those who watch of every change, until it is cancelled."""
        while True:
            self._engine.changed.clear()
            await self.tell()
            await self._engine.changed.wait()

    async def tell(self) -> None:
        is_ready = self._engine.is_healthy and self._engine.has_group
        for name, is_for in self._services.items():
            await self.servicer.set(name, _Status.SERVING if is_ready and is_for else _Status.NOT_SERVING)

    async def end(self) -> None:
        await self.servicer.enter_graceful_shutdown()
