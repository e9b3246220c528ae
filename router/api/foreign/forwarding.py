"""The routes whose requests may be for a model of a server elsewhere."""

from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.anthropic.failures import anthropic_event
from penstock.router.api.foreign.events import whole_events
from penstock.router.api.foreign.falling_back import answered_or
from penstock.router.api.foreign.headers import to_client, to_source
from penstock.router.api.http.body import READ_AHEAD, read_json
from penstock.router.api.http.failures import to_router_error
from penstock.router.api.http.parts import send_parts
from penstock.router.api.http.route import Route
from penstock.router.api.http.sse import UNREAD_SECONDS, EventStyle, EventWriter
from penstock.router.api.openai.envelope import DONE
from penstock.router.api.openai.manner import manner_of
from penstock.router.errors import Dropped, RouterError
from penstock.router.foreign.answer import Answer
from penstock.router.foreign.attempt import Outcome
from penstock.router.foreign.model import PATHS, ForeignModel
from penstock.router.foreign.told_tokens import of_answer, of_events
from penstock.router.generation import request_record
from penstock.router.generation.identity import REPEAT, RESUME
from penstock.router.generation.services import COUNTS, SERVICES, chosen_of, elsewhere_of, first_of, has_steps_behind

SOURCE = "penstock-source"
"""The header that tells which server has answered. Nothing is promised of the bits of its answers."""
_ALL = frozenset(path for paths in PATHS.values() for path in paths)
_FREE = ("/v1/messages/count_tokens",)
"""The routes that make no answers: they are in no account, and in no rate."""


def forwarding(route: Route) -> Route:
    """Returns a route that passes the requests on whose model is elsewhere, if there may be such requests."""
    if route.method != "POST" or route.path not in _ALL:
        return route

    async def handle(request: web.Request) -> web.StreamResponse:
        content = await read_json(request)
        model = elsewhere_of(request, _model_in(content) if _names_model(route.path) else None)
        if model is not None:
            return await forward(request, content, model, route.path, num_requests=1)
        request[READ_AHEAD] = content
        fallback = request.app[SERVICES].fallback_of(chosen_of(request))
        if fallback is None or RESUME in request.headers or REPEAT in request.headers or has_steps_behind(request):
            return await route.handler(request)
        return await answered_or(request, route, fallback, partial(forward, request, content, path=route.path))

    return replace(route, handler=handle)


def _names_model(path: str) -> bool:
    """Tells whether bodies have a field for the model."""
    return path.startswith("/v1/")


def _model_in(content: Any) -> str | None:
    model = content.get("model") if isinstance(content, dict) else None
    return model if isinstance(model, str) else None


async def forward(
    request: web.Request, content: Any, model: ForeignModel, path: str, num_requests: int = 0
) -> web.StreamResponse:
    """Passes a request on, and its answer back. It is `num_requests` of those that its key may send in a time: none if
    it was counted before."""
    request[COUNTS] = model.metrics
    record = request_record.current()
    if path not in _FREE:
        await _let_in(request, num_requests)
    if path not in model.paths:
        raise model.refusal
    if _names_model(path) and isinstance(content, dict):
        content["model"] = model.settings.model
    target = f"{path}?{query}" if (query := request.rel_url.raw_query_string) else path
    async with model.asked(target, orjson.dumps(content), to_source(request), record.attempts) as answer:
        answer.attempt.is_counted = answer.status < 400 and path not in _FREE
        response = await _pass_back(request, answer, path)
    if answer.attempt.outcome is Outcome.LEFT:
        record.failed(Dropped())
    return response


async def _let_in(request: web.Request, num_requests: int) -> None:
    """Lets a request in, by the budget of its key and by its rate, in this order. Raises BudgetSpent and TooFast."""
    around = first_of(request).around
    if around.accounting is not None:
        around.accounting.admit(request_record.current())
    if num_requests:
        await around.take(num_requests=num_requests)


async def _pass_back(request: web.Request, answer: Answer, path: str) -> web.StreamResponse:
    headers = {**to_client(answer.headers), SOURCE: answer.source}
    if answer.is_stream:
        return await _pass_events(request, answer, headers, _style(request, path))
    if answer.is_whole:
        answer.attempt.tokens = of_answer(answer.first, answer.headers)
        return web.Response(status=answer.status, body=answer.first, headers=headers)
    response = web.StreamResponse(status=answer.status, headers=headers)
    return await send_parts(request, response, answer.parts(), UNREAD_SECONDS)


async def _pass_events(
    request: web.Request, answer: Answer, headers: dict[str, str], style: EventStyle
) -> web.StreamResponse:
    """Passes a stream back. Where it breaks off its last event tells of the failure, as it does of models here."""
    writer = EventWriter(request, headers, ping=style.ping)
    async with aclosing(answer.parts()) as parts:
        with suppress(ConnectionError):  # the client has left
            async with writer:
                try:
                    async for events in whole_events(parts):
                        answer.attempt.tokens = of_events(events, answer.attempt.tokens)
                        await writer.pass_on(events)
                except RouterError as error:
                    await writer.fail(to_router_error(error), style)
                    if style.last is not None:
                        await writer.send(style.last)
    return writer.response


def _style(request: web.Request, path: str) -> EventStyle:
    """Returns how a route tells of the failure of a stream."""
    if path == "/v1/messages":
        return EventStyle(anthropic_event, b"error", ping=b'event: ping\ndata: {"type": "ping"}\n\n')
    if path == "/v1/responses":
        return EventStyle(_response_event, b"error")
    if path.startswith("/v1/"):
        return EventStyle(manner_of(first_of(request)).event, last=DONE)
    return EventStyle(_tgi_event)


def _response_event(error: RouterError) -> bytes:
    return orjson.dumps({"type": "error", "code": error.code, "message": error.reason, "param": None})


def _tgi_event(error: RouterError) -> bytes:
    return orjson.dumps(error.body())
