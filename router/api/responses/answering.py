"""Answers a body of `/v1/responses`, whole or in events."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.http.headers import compute_time, request_headers, time_headers
from penstock.router.api.http.sse import ADMITTED, AnswerEvent, EventStyle, stream_events
from penstock.router.api.openai.envelope import Whole
from penstock.router.api.openai.service_tier import served_tier
from penstock.router.api.openai.storage import check_metadata
from penstock.router.api.responses import response
from penstock.router.api.responses.bodies import Item, ResponseBody
from penstock.router.api.responses.making import Making
from penstock.router.api.responses.output_items import Event
from penstock.router.api.responses.turns import as_chat, turn_of
from penstock.router.errors import RouterError, ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import REPEAT, Identity, Wish
from penstock.router.turns.asked import Asked, ask

Keep = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Stores a response that has come to its end, and returns it as the client is told of it."""
_NOT_ASKED = ("stream", "seed", "priority", "service_tier", "deadline_ms", "store", "background")
"""The fields that change nothing in an answer."""


def asked_of(
    asking: Asking, body: ResponseBody, before: Sequence[Item], wish: Wish, *, is_stream: bool
) -> AbstractAsyncContextManager[Asked]:
    """Holds the permit of a body, and reads it. The response tells of most of the body, so that its name, from which
    its id follows, covers nearly all of that."""
    told = body.model_dump(exclude_unset=True, exclude=set(_NOT_ASKED), by_alias=True)
    return ask(asking, lambda: turn_of(body, before, asking.service), wish, ("response", told), is_stream=is_stream)


def id_of(identity: Identity, is_background: bool) -> str:
    """Returns the id of a response, which follows from its answer's name. One of the background is another response,
    for its events are others."""
    return identity.openai_id("resp", "background" * is_background).replace("-", "_")


def begun(asked: Asked, body: ResponseBody, is_stored: bool, id: str | None = None, created_at: int | None = None
          ) -> dict[str, Any]:
    """Returns the response as it is told at its beginning; `id` and `created_at` are those of one that is known
    already."""
    service, id = asked.asking.service, id or id_of(asked.identity, bool(body.background))
    request_record.name_answer(id)
    model = service.info.model_id if body.model in (None, "tgi") else str(body.model)
    return response.begun(body, id, created_at or int(time.time()), model,
                          served_tier(as_chat(body), service.limits), is_stored)


async def whole_answer(
    asking: Asking, body: ResponseBody, before: Sequence[Item], wish: Wish, keep: Keep | None = None
) -> Whole:
    """Returns the whole response. Raises RouterError."""
    async with asked_of(asking, body, before, wish, is_stream=False) as asked:
        async with asked.answering() as answers:
            making = Making(asked, answers, body, begun(asked, body, keep is not None))
            async for _, part in answers:
                for _ in making.take(part):
                    pass
        content = making.whole()
        times = {**compute_time(answers.each), **time_headers(answers.each)}
        return Whole(content if keep is None else await keep(content), {**_headers(asked), **times})


async def lone_answer(asking: Asking, body: ResponseBody, wish: Wish) -> Whole:
    """Returns the whole response to a line of a batch: it is kept there, and goes on from no other. Raises
    RouterError."""
    for name in ("background", "previous_response_id"):
        if getattr(body, name):
            raise ValidationError(f"`{name}` is not for lines of batches", "unsupported_parameter")
    check_metadata(body.metadata)
    return await whole_answer(asking, body, [], wish)


async def stream(
    request: web.Request, asking: Asking, body: ResponseBody, before: Sequence[Item], wish: Wish,
    keep: Keep | None = None,
) -> web.StreamResponse:
    """Answers with the events of a response. Raises RouterError for what comes before the first of them."""
    makings: list[Making] = []

    def fail(error: RouterError) -> bytes:
        return orjson.dumps(makings[0].fail(error))

    async def events(asked: Asked) -> AsyncGenerator[AnswerEvent]:
        async with asked.answering() as answers:
            making = Making(asked, answers, body, begun(asked, body, keep is not None))
            makings.append(making)
            yield ADMITTED
            is_strict = asking.service.limits.strict_streaming_errors
            first = [await anext(answers)] if is_strict else []  # else what it raises would come too late
            for event in making.begin():
                yield as_sent(event)
            for _, part in first:
                for event in making.take(part):
                    yield as_sent(event)
            async for _, part in answers:
                for event in making.take(part):
                    yield as_sent(event)
        content = making.whole()
        yield as_sent(making.end(content if keep is None else await keep(content)))

    style = EventStyle(fail, b"response.failed", waits=True)
    async with asked_of(asking, body, before, wish, is_stream=True) as asked:
        return await stream_events(request, _headers(asked), events(asked), style, asked.identity)


def as_sent(event: Event) -> AnswerEvent:
    """Returns an event as it is sent: each belongs to the one answer, so that its id has its number."""
    return AnswerEvent(0, orjson.dumps(event), event["type"].encode())


def _headers(asked: Asked) -> dict[str, str]:
    return {**request_headers(asked.asking.service, asked.spec.inputs), REPEAT: asked.identity.text}
