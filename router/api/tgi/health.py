"""Whether the server works: TGI's `/health` and `/ping`, and what Kubernetes asks, `/livez` and `/readyz`."""

from aiohttp import web

from penstock.router.errors import Unhealthy
from penstock.router.generation.services import SERVICES, first_of


async def health(request: web.Request) -> web.Response:
    """Answers 200 while requests are taken, also while they wait for a lost group to start again; 503 otherwise."""
    if not first_of(request).engine.is_healthy:
        raise Unhealthy
    return web.Response()


async def readyz(request: web.Request) -> web.Response:
    """Answers 200 if a request would be computed now; 503 if requests are better sent elsewhere."""
    engine = first_of(request).engine
    if not engine.is_healthy:
        raise Unhealthy
    if not engine.has_group:
        raise Unhealthy("the shards are being started")
    return web.Response()


async def livez(request: web.Request) -> web.Response:
    """Answers 200 while the router makes progress; 503 if it is better started again."""
    for service in [*request.app[SERVICES]]:
        stalled, limit = await service.engine.stalled_seconds(), service.limits.stall_limit
        if stalled > limit:
            raise Unhealthy(f"no step came back for {stalled:.0f} s though requests run, the limit is {limit:g} s")
    return web.Response()
