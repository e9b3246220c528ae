"""Handlers of TEI's routes: each reads a body, and sends what is made of it."""

import asyncio
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web

from penstock.router.api.http.access import Handler
from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.http.measures import Told
from penstock.router.api.tei import texts, vectors
from penstock.router.api.tei.bodies import (
    DecodeBody,
    EmbedBody,
    PredictBody,
    SimilarityBody,
    TextsBody,
    TokenizeBody,
)
from penstock.router.api.tei.nested import nested_response
from penstock.router.api.tei.scores import Predictions, predict
from penstock.router.generation.asking import Asking
from penstock.router.generation.services import service_of
from penstock.router.shapes import Body

AnyBody = TypeVar("AnyBody", bound=Body)
_VECTORS_AT_ONCE = 64


def answering(schema: type[AnyBody], answer: Callable[[Asking, AnyBody], Awaitable[Told[Any]]]) -> Handler:
    """Returns a handler that sends what is told of a body as JSON."""
    async def handle(request: web.Request) -> web.StreamResponse:
        return await respond(request, await read_body(request, schema), answer)

    return handle


async def respond(
    request: web.Request, body: AnyBody, answer: Callable[[Asking, AnyBody], Awaitable[Told[Any]]]
) -> web.Response:
    """Returns the response that tells what is told of a body."""
    with Asking(await service_of(request)) as asking:
        told = await answer(asking, body)
        return json_response(told.content, headers=told.measures.headers(asking.service))


async def predicted(asking: Asking, body: PredictBody) -> Told[list[Predictions] | Predictions]:
    """Returns a list for each text, or that of the only one where the client did not send a list of lists."""
    told = await predict(asking, body)
    is_list = body.inputs.is_batch or body.parameters is not None
    return Told(told.content if is_list else told.content[0], told.measures)


embed = answering(EmbedBody, vectors.embed)
embed_sparse = answering(TextsBody, vectors.embed_sparse)
similarity = answering(SimilarityBody, vectors.similarity)
predict_texts = answering(PredictBody, predicted)


async def embed_all(request: web.Request) -> web.StreamResponse:
    """Answers with the vectors of all tokens of each text."""
    body = await read_body(request, TextsBody)
    with Asking(await service_of(request)) as asking:
        told = await vectors.embed_all(asking, body)
        return await nested_response(request, [*map(_by_parts, told.content)], told.measures.headers(asking.service))


async def _by_parts(found: "list[array[float]]") -> AsyncGenerator[list[Any]]:
    for start in range(0, len(found), _VECTORS_AT_ONCE):
        yield [vector.tolist() for vector in found[start:start + _VECTORS_AT_ONCE]]
        await asyncio.sleep(0)  # others get their turn


async def tokenize(request: web.Request) -> web.StreamResponse:
    """Answers with the tokens of each text, with their places in it."""
    body = await read_body(request, TokenizeBody)
    service = await service_of(request)
    inputs = texts.check_texts(service, body)
    async with service.engine.permit():
        return await nested_response(
            request, [texts.tokenize(service, text, body.add_special_tokens) for text in inputs])


async def decode(request: web.Request) -> web.StreamResponse:
    """Answers with the texts of token ids."""
    body = await read_body(request, DecodeBody)
    service = await service_of(request)
    async with service.engine.permit():
        return json_response(await texts.decode(service, body))
