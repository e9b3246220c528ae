"""The web application: routes, the error middleware, and the engine's task, which lives as long as the app.

Run it with `web.AppRunner(app, handler_cancellation=True, auto_decompress=False)`: without the first, a request
whose client has left runs on; the second keeps compressed bodies, which could unpack to any size, out.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from router.api import completions, native
from router.api import info as information
from router.api.body import json_response
from router.api.counting import count_answers
from router.api.failures import to_router_error
from router.api.service import SERVICE, ServerInfo, Service
from router.engines import Engines
from router.limits import Limits
from router.metrics import Metrics
from router.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(
    engines: Engines, tokenizer: Tokenizer, limits: Limits, metrics: Metrics, info: ServerInfo,
    outer: Sequence[Middleware] = (),
) -> web.Application:
    """The app over parts that are ready to answer. `outer` middlewares see the responses as clients get them."""
    app = web.Application(middlewares=[*outer, count_answers, answer_errors], client_max_size=limits.payload_limit)
    app[SERVICE] = Service(engines, tokenizer, limits, metrics, info)
    app.cleanup_ctx.append(run_engine)
    app.add_routes([
        web.get("/", information.health),
        web.post("/", native.compat_generate),
        web.post("/generate", native.generate),
        web.post("/generate_stream", native.generate_stream),
        web.post("/v1/completions", completions.completions),
        web.post("/tokenize", information.tokenize),
        web.get("/info", information.info),
        web.get("/v1/models", information.models),
        web.get("/health", information.health),
        web.get("/metrics", information.metrics),
    ])
    return app


async def run_engine(app: web.Application) -> AsyncIterator[None]:
    """The engine's one task. When it fails the router ends as if asked to, for only a new one can start afresh."""
    task = asyncio.create_task(app[SERVICE].engines.choose().run(), name="engine")
    task.add_done_callback(_end_router)
    yield
    task.cancel()
    await asyncio.wait([task])


def _end_router(engine: asyncio.Task[None]) -> None:
    if not engine.cancelled() and (error := engine.exception()):
        log.critical("the engine failed", exc_info=error)
        signal.raise_signal(signal.SIGTERM)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What handlers raise, as TGI answers it: JSON, plain text for a body that can't be read, nothing for no route."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return web.Response(status=413, text="Failed to buffer the request body: length limit exceeded")
    except web.HTTPMethodNotAllowed as error:
        return web.Response(status=error.status, headers={"allow": error.headers["Allow"]})
    except web.HTTPNotFound as error:
        return web.Response(status=error.status)
    except web.HTTPException:
        raise
    except Exception as error:
        failure = to_router_error(error)
        return json_response(failure.body(), status=failure.status)
