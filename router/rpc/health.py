"""The standard health service, as the engine's state has it."""

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio

from penstock.router.engine.any_engine import AnyEngine

_Status = health_pb2.HealthCheckResponse


class Health:
    """Says SERVING while a request would be computed now, as `/readyz` does; never again once `end` was called."""

    def __init__(self, engine: AnyEngine, service_name: str) -> None:
        self.servicer = aio.HealthServicer()
        self._engine = engine
        self._names = ("", service_name)

    async def follow(self) -> None:
        """Tells those who watch of every change, until it is cancelled."""
        while True:
            self._engine.changed.clear()
            await self.tell()
            await self._engine.changed.wait()

    async def tell(self) -> None:
        is_ready = self._engine.is_healthy and self._engine.has_group
        for name in self._names:
            await self.servicer.set(name, _Status.SERVING if is_ready else _Status.NOT_SERVING)

    async def end(self) -> None:
        await self.servicer.enter_graceful_shutdown()
