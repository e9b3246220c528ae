"""The gRPC server: the public API, the standard health service, and reflection."""

from pathlib import Path
from typing import Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha import reflection

from protos import penstock_pb2, penstock_pb2_grpc
from router.api.access import Access
from router.api.service import Service
from router.rpc.access import KeyInterceptor
from router.rpc.service import TextGeneration, Tracer

NAME = penstock_pb2.DESCRIPTOR.services_by_name["TextGeneration"].full_name
"""Of the service; its health is that of the server, whose name is empty."""


class RpcServer:
    """Serves from `start` to `stop`."""

    def __init__(
        self, service: Service, access: Access, *, payload_limit: int, tracer: Tracer | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        """`payload_limit`: bytes of a request. `certificate`: files of the chain and its key, for TLS."""
        self._server = grpc.aio.server(interceptors=[KeyInterceptor(access)], options=[
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ("grpc.max_receive_message_length", payload_limit)])
        self._certificate = certificate
        penstock_pb2_grpc.add_TextGenerationServicer_to_server(TextGeneration(service, tracer), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(Health(service), self._server)
        reflection.enable_server_reflection([NAME, HEALTH, reflection.SERVICE_NAME], self._server)

    async def start(self, hostname: str, port: int) -> int:
        """The port it listens on, which the system chooses for 0. OSError if it is taken."""
        address = f"[{hostname}]:{port}" if ":" in hostname else f"{hostname}:{port}"
        try:
            bound: int = self._bind(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {address}: {error}") from error
        await self._server.start()
        return bound

    async def stop(self, grace: float) -> None:
        """Take nothing new; what runs has so many seconds."""
        await self._server.stop(grace)

    def _bind(self, address: str) -> int:
        if self._certificate is None:
            return int(self._server.add_insecure_port(address))
        chain, key = (path.read_bytes() for path in self._certificate)
        return int(self._server.add_secure_port(address, grpc.ssl_server_credentials([(key, chain)])))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """SERVING while requests are taken, as `/health` is."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in ("", NAME):
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        is_healthy = self._service.engines.choose().is_healthy
        status = health_pb2.HealthCheckResponse.SERVING if is_healthy else health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=status)
