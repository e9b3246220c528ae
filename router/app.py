"""The web application: routes, the error middleware, and the engines' tasks, which live as long as the app."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from penstock.router.api import route_table
from penstock.router.api.anthropic.failures import anthropic_response, speaks_anthropic
from penstock.router.api.anthropic.failures import tell_request_id as tell_anthropics_request_id
from penstock.router.api.foreign.forwarding import forwarding
from penstock.router.api.http.access import ACCESS, Access, Handler
from penstock.router.api.http.body_room import ROOM, BodyRoom, leave_room
from penstock.router.api.http.connection import MAX_HEADERS, MAX_LINE, Runner
from penstock.router.api.http.counting import count_answers, name_request, tell_model, tell_request
from penstock.router.api.http.failures import error_response, of_framework, to_router_error
from penstock.router.api.http.headers import name_server
from penstock.router.api.http.receipts import receipting
from penstock.router.api.http.route import Route, add_routes, for_models
from penstock.router.api.kserve.failures import kserve_response, speaks_kserve
from penstock.router.api.openai.failures import OTHER_PATHS, openai_response, speaks_openai
from penstock.router.api.openai.storage import DOWNLOADS, STORE, UPLOADS
from penstock.router.api.shadowing import SHADOWS, Shadows, shadowing
from penstock.router.api.tei.failures import error_types
from penstock.router.generation.services import SERVICES, Services
from penstock.router.memory_ceiling import NUM_TRANSFERS
from penstock.router.pipelines.pipelines import Pipelines
from penstock.router.pipelines.piping import piping

if TYPE_CHECKING:
    from penstock.router.store.store import Store  # which imports SQLAlchemy

log = logging.getLogger(__name__)

IDLE_SECONDS = 75.0
"""Seconds that a connection may wait for a request's headers, or for the next request: longer than proxies keep
theirs."""
LINGER_SECONDS = 2.0
"""Seconds for which the rest of a refused body is read and dropped, so that its client comes to read why."""


def make_app(
    services: Services, access: Access | None = None, more_routes: Sequence[Route] = (),
    outer: Sequence[Middleware] = (), store: "Store | None" = None, pipelines: Pipelines | None = None,
) -> web.Application:
    """Returns the app over services that are ready to answer. `outer` middlewares see the responses as clients get
    them. Files and batches are kept in `store`, which is closed when the app ends."""
    access = access or Access()
    app = web.Application(middlewares=[
        name_request, count_answers, *outer, access.answer_preflight, leave_room, answer_errors])
    app[ROOM] = BodyRoom(services.first.limits)
    app[OTHER_PATHS] = frozenset(route.path.rstrip("/") for route in more_routes)
    app[SERVICES], app[ACCESS] = services, access
    if store is not None:
        app[STORE] = store
        app[UPLOADS], app[DOWNLOADS] = asyncio.Semaphore(NUM_TRANSFERS), asyncio.Semaphore(NUM_TRANSFERS)
        store.database.on_failure = services.first.metrics.batches.store_failed
        app.on_cleanup.append(_close_store)
    app.cleanup_ctx.append(run_engines)
    if services.are_several:
        app.cleanup_ctx.append(run_models)
    app.on_response_prepare.extend([access.tell_origin, tell_request, tell_anthropics_request_id, name_server])
    if services.are_several:
        app.on_response_prepare.append(tell_model)
    routes = route_table.routes(services.first.info.version, more_routes, access)
    if services.has_elsewhere:
        routes = [forwarding(route) for route in routes]
    if services.are_several:
        app[SHADOWS] = Shadows(services)
        app.on_cleanup.append(_close_shadows)
        routes = [shadowing(route) for route in routes]
    if pipelines:
        routes = [piping(route, pipelines) for route in routes]
    routes = [receipting(route) for route in routes]
    add_routes(app, [*routes, *(for_models(routes) if services.are_several else ())], access)
    return app


def make_runner(
    app: web.Application, shutdown_timeout: float = 0.0, idle_seconds: float = IDLE_SECONDS
) -> web.AppRunner:
    """Returns a runner that cancels a request whose client has left, and never unpacks bodies, which could grow to
    any size."""
    logging.getLogger("aiohttp.server").addFilter(_is_ours)
    return Runner(
        app, handler_cancellation=True, auto_decompress=False, access_log=None, shutdown_timeout=shutdown_timeout,
        keepalive_timeout=idle_seconds, lingering_time=LINGER_SECONDS, max_line_size=MAX_LINE, max_field_size=MAX_LINE,
        max_headers=MAX_HEADERS)


def _is_ours(record: logging.LogRecord) -> bool:
    """Drops aiohttp's records of requests that are not HTTP: they are the client's fault, and may hold its key."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def _close_store(app: web.Application) -> None:
    await app[STORE].database.close()


async def _close_shadows(app: web.Application) -> None:
    await app[SHADOWS].close()


async def run_engines(app: web.Application) -> AsyncIterator[None]:
    """Runs the one task of each engine. When one fails the router ends as by SIGTERM, for only a new process can start
    afresh."""
    tasks = [asyncio.create_task(service.engine.run(), name="engine") for service in app[SERVICES]]
    for task in tasks:
        task.add_done_callback(end_router)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_models(app: web.Application) -> AsyncIterator[None]:
    """Loads and unloads models beside the first."""
    running = asyncio.create_task(app[SERVICES].run(), name="models")
    running.add_done_callback(end_router)
    yield
    running.cancel()
    await asyncio.wait([running])
    await app[SERVICES].close()


def end_router(engine: asyncio.Task[None]) -> None:
    """Ends the router as by SIGTERM if its engine's task has failed."""
    if not engine.cancelled() and (error := engine.exception()):
        log.critical("the engine failed", exc_info=error)
        signal.raise_signal(signal.SIGTERM)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers the errors of handlers, in the shape of the API that the request is for."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        failure = of_framework(request, error)
        if failure is None:
            raise
    except Exception as error:
        failure = to_router_error(error)
    if speaks_anthropic(request):
        return anthropic_response(failure)
    if speaks_kserve(request):
        return kserve_response(failure)
    if speaks_openai(request):
        return openai_response(failure)
    return error_response(failure, error_types(request.app[SERVICES].first.facts))
