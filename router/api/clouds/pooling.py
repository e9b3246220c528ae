"""Clouds' routes, and `POST /`, of models that make vectors or scores: the body decides what is made, as in TEI."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, Field

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.api.clouds.errors import NoInstances
from penstock.router.api.http.body import json_response, read_json, to_body
from penstock.router.api.http.measures import Told
from penstock.router.api.tei import replies, vectors
from penstock.router.api.tei.bodies import EmbedBody, PredictBody, RerankBody, SimilarityBody, TextsBody
from penstock.router.api.tei.handlers import predicted
from penstock.router.api.tei.scores import rerank
from penstock.router.errors import Overloaded
from penstock.router.generation.asking import Asking
from penstock.router.generation.services import service_of
from penstock.router.generation.tasks import reranks
from penstock.router.shapes import Body

PoolingBody = EmbedBody | TextsBody | SimilarityBody | PredictBody | RerankBody
Way = tuple[type[Body], Callable[[Asking, Any], Awaitable[Told[Any]]]]


class PoolingInstances(Body):
    """The body of `POST /vertex` for a model that makes vectors or scores: a body of its route for each prediction."""

    instances: Annotated[list[PoolingBody], Field(fail_fast=True)]


PoolingAnswer = replies.Vectors | replies.SparseVectors | list[float] | replies.Predictions | list[replies.Rank]


class PoolingPredictions(BaseModel):
    predictions: list[PoolingAnswer]


async def invocations(request: web.Request) -> web.StreamResponse:
    """Answers as the model's route for a body with these fields does."""
    content = await read_json(request)
    service = await service_of(request)
    schema, answer = way_of(service.facts, content)
    body = to_body(content, schema)
    with Asking(service) as asking:
        told = await answer(asking, body)
        return json_response(told.content, headers=told.measures.headers(service))


async def vertex(request: web.Request) -> web.StreamResponse:
    """Answers with a prediction for each instance. They are computed together; if one fails, all do."""
    content = await read_json(request)
    service = await service_of(request)
    found = to_body(content, _Instances).instances
    if len(found) > service.limits.max_concurrent_requests:
        raise Overloaded  # before they are looked at, for there may be a million
    if not found:
        raise NoInstances
    ways = [way_of(service.facts, instance) for instance in found]
    bodies = [to_body(instance, schema) for instance, (schema, _) in zip(found, ways, strict=True)]

    async def answer(number: int) -> Any:
        with Asking(service) as asking:
            return (await ways[number][1](asking, bodies[number])).content

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answer(number)) for number in range(len(bodies))]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return json_response({"predictions": [task.result() for task in tasks]})


class _Instances(Body):
    instances: list[Any]


def way_of(facts: Facts, content: object) -> Way:
    """Returns the body that is to be read, and the function that answers it: those of what the model does, for which
    the fields tell whether texts are ranked or compared."""
    fields = content if isinstance(content, dict) else {}
    if "texts" in fields or (reranks(facts) and "inputs" not in fields):
        return RerankBody, rerank
    if Task.CLASSIFY in facts.tasks:
        return PredictBody, predicted
    if Task.EMBED not in facts.tasks:
        return TextsBody, vectors.embed_sparse
    if isinstance(fields.get("inputs"), dict):
        return SimilarityBody, vectors.similarity
    return EmbedBody, vectors.embed
