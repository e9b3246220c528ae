"""The routes of Text Embeddings Inference, and those that TGI has at the same paths."""

from dataclasses import replace
from typing import Any

from aiohttp import web

from penstock.contract.pooling import Task
from penstock.router.api.http.access import Handler
from penstock.router.api.http.body import json_response
from penstock.router.api.http.route import JSON, TEXT, Reply, Route
from penstock.router.api.tei import handlers, info, replies
from penstock.router.api.tei.bodies import (
    DecodeBody,
    EmbedBody,
    PredictBody,
    SimilarityBody,
    TextsBody,
)
from penstock.router.api.tgi import replies as tgi
from penstock.router.api.usual_replies import GENERATING, SPLITTING
from penstock.router.generation.services import service_of

TEI = "Text Embeddings Inference"
"""The heading of the routes in the OpenAPI document."""
MEASURES = {
    "x-compute-type": "The hardware that the server runs on.",
    "x-compute-characters": "The number of characters of all texts.",
    "x-compute-tokens": "The number of tokens of all texts.",
    **{f"x-{name}-time": f"Milliseconds {what}." for name, what in (
        ("compute", "from the request to the answer"), ("total", "from the request to the answer"),
        ("tokenization", "for which a text was split into tokens, on average"),
        ("queue", "for which a text waited for its step, on average"),
        ("inference", "for which a text was computed, on average"))},
}
_EMPTY = {400: Reply("The body is not JSON (plain text), or there is no text (JSON).", {TEXT: str, JSON: tgi.Error})}
POOLING = {
    **{status: reply for status, reply in GENERATING.items() if status != 409}, **_EMPTY,
    424: replace(GENERATING[424], meaning="The request failed while it was computed.")}


def by_model(generating: Handler, pooling: Handler) -> Handler:
    """Returns a handler that answers by the first one where the model generates text, else by the other."""
    async def handle(request: web.Request) -> web.StreamResponse:
        return await (generating if Task.GENERATE in (await service_of(request)).facts.tasks else pooling)(request)

    return handle


def shared(route: Route, pooling: Handler, content: Any, body: Any = None) -> Route:
    """Returns a route that answers as it is where the model generates text, else by the handler `pooling`, which takes
    a `body` and sends `content`."""
    reply = route.replies[200]
    both = replace(reply, content={**reply.content, JSON: reply.content[JSON] | content})
    return replace(route, handler=by_model(route.handler, pooling), body=body and route.body | body,
                   replies={**route.replies, 200: both})


async def describe(request: web.Request) -> web.StreamResponse:
    """Answers with what TEI tells of a model, and how its numbers are computed."""
    return json_response(info.describe(await service_of(request)))


def _route(path: str, handler: Handler, summary: str, body: object, meaning: str, content: object) -> Route:
    return Route("POST", path, handler, summary, {200: Reply(meaning, {JSON: content}, MEASURES), **POOLING}, body,
                 is_costly=True, tag=TEI)


TEI_ROUTES = (
    _route("/embed", handlers.embed, "Makes a vector of each text.", EmbedBody,
           "The vectors, in the order of the texts.", replies.Vectors),
    _route("/embed_all", handlers.embed_all, "Makes a vector of each token of each text.", TextsBody,
           "A list of vectors for each text.", replies.TokenVectors),
    _route("/embed_sparse", handlers.embed_sparse, "Makes a sparse vector of each text.", TextsBody,
           "The numbers of each vector that are not 0.", replies.SparseVectors),
    _route("/similarity", handlers.similarity, "Tells how alike a text and others are.", SimilarityBody,
           "The cosine of the vectors of the text and of each other.", list[float]),
    _route("/predict", handlers.predict_texts, "Scores texts, or pairs of them, for each label.", PredictBody,
           "The labels with their scores, the highest first; a list of them for each text of a list.",
           replies.Predictions),
    Route("POST", "/decode", handlers.decode, "Joins tokens to texts.",
          {200: Reply("The text of each list of tokens.", {JSON: list[str]}), **SPLITTING, **_EMPTY}, DecodeBody,
          is_costly=True, tag=TEI),
)
