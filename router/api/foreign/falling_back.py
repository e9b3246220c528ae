"""Requests to a model here whose place others elsewhere take where it fails before its answer begins."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from penstock.router.api.http.failures import to_router_error
from penstock.router.api.http.route import Route
from penstock.router.api.http.sse import STRICT
from penstock.router.errors import Dropped, GenerationError, KilledGroup, Overloaded, RouterError
from penstock.router.foreign.attempt import Attempt, Outcome
from penstock.router.foreign.errors import SourceFailed, SourceTooSlow
from penstock.router.foreign.model import ForeignModel
from penstock.router.foreign_settings import Fallback
from penstock.router.generation import request_record
from penstock.router.generation.request_record import RequestRecord
from penstock.router.generation.services import COUNTS, SERVICES, TAKEN, chosen_of

HERE = "here"
"""Stands for the URL of this server in the log's line."""


async def answered_or(
    request: web.Request, route: Route, fallback: Fallback,
    ask: Callable[[ForeignModel], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Returns the route's response, or what `ask` returns for the first model of the fallback that has the route and
    answers. A stream begins with its first token. Raises the route's own error if none does."""
    services, record = request.app[SERVICES], request_record.current()
    models = [model for name in fallback.names
              if (model := services.elsewhere(name)) is not None and route.path in model.paths]
    if not models:
        return await route.handler(request)
    attempt = Attempt(chosen_of(request) or services.first.info.model_id, HERE)
    request[STRICT] = True
    try:
        return await _in_time(request, route, fallback.after)
    except web.HTTPException:
        raise
    except Exception as error:
        failure = to_router_error(error)
    if (outcome := _outcome(failure)) is None:
        raise failure
    attempt.end(outcome)
    record.attempts.append(attempt)
    taken = request.pop(TAKEN, [])
    for service in taken:
        services.give_back(service)
    record.generations.clear()
    for model in models:
        record.error = None
        try:
            return await ask(model)
        except (SourceFailed, Overloaded):
            pass
    request[COUNTS] = taken[-1].metrics if taken else services.first.metrics
    raise failure


async def _in_time(request: web.Request, route: Route, after: float | None) -> web.StreamResponse:
    """Returns the route's response. Raises SourceTooSlow if its answer has not begun `after` so many seconds."""
    record = request_record.current()

    def look() -> None:
        if not has_begun(record):
            limit.reschedule(loop.time())

    loop = asyncio.get_running_loop()
    looking = None if after is None else loop.call_later(after, look)
    try:
        async with asyncio.timeout(None) as limit:
            return await route.handler(request)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise SourceTooSlow(f"no answer has begun within {after:g} s") from error
    finally:
        if looking is not None:
            looking.cancel()


def has_begun(record: RequestRecord) -> bool:
    """Tells whether a request has got the first token of an answer, or all that it asks for."""
    return any(stream.first_token_at or stream.finished_at for stream in record.streams)


def _outcome(failure: RouterError) -> Outcome | None:
    """Returns the outcome of a request that another model may answer; None where it would fail there, too, or nobody
    waits for the answer."""
    if isinstance(failure, SourceTooSlow):
        return Outcome.TIMEOUT
    if isinstance(failure, Overloaded):
        return Outcome.OVERLOADED
    if isinstance(failure, KilledGroup | Dropped):
        return None
    return Outcome.FAILED if failure.status >= 500 or isinstance(failure, GenerationError) else None
