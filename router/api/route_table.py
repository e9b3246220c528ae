"""All routes, each with what it takes and what it may answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.router.api.clouds import sagemaker, vertex
from penstock.router.api.http.docs import Docs, page_routes
from penstock.router.api.http.page import for_browsers
from penstock.router.api.http.route import EVENTS, JSON, TEXT, Reply, Route
from penstock.router.api.openai import chat, completions
from penstock.router.api.openai import replies as openai
from penstock.router.api.openai.bodies import ChatBody, CompletionBody
from penstock.router.api.tgi import generate as native
from penstock.router.api.tgi import health, info
from penstock.router.api.tgi import replies as tgi
from penstock.router.api.tgi.bodies import CompatBody, GenerateBody
from penstock.router.config import InvalidArgument

_READING = {
    400: Reply("The body is no JSON.", {TEXT: str}),
    401: Reply("The API key is missing or another one.", headers={"www-authenticate": "Bearer"}),
    408: Reply("The body did not come in time.", {TEXT: str}),
    413: Reply("The body is longer than the limit.", {TEXT: str}),
    415: Reply("The content type is not JSON.", {TEXT: str}),
    422: Reply("The body has another shape (text), or breaks a rule (JSON).",
               {TEXT: str, JSON: tgi.Error | openai.OpenAIError}),
    500: Reply("A fault of the server.", {JSON: tgi.Error}),
}
_GENERATING = {
    **_READING,
    424: Reply("The request failed while it ran.", {JSON: tgi.Error}),
    429: Reply("As many requests as may be are in the server.", {JSON: tgi.Error}),
    503: Reply("No shards are there to answer.", {JSON: tgi.Error}),
}
_HEALTH = {
    200: Reply("It is."),
    503: Reply("It is not, for the reason given.", {JSON: tgi.Error}),
}
_COMPUTE = {"x-compute-type": "What it runs on.", "x-compute-characters": "Characters of the prompt."}
_TIMES = {
    **_COMPUTE,
    **{f"x-{name}-time": "Milliseconds." for name in ("total", "validation", "queue", "inference")},
    "x-time-per-token": "Milliseconds.", "x-prompt-tokens": "Tokens of the prompt.",
    "x-generated-tokens": "Tokens of the answer.",
}
_ALL_TIMES = {**_TIMES, "x-compute-time": "Seconds."}


def _costly(path: str, handler: Any, summary: str, body: Any, reply: Reply) -> Route:
    return Route("POST", path, handler, summary, {200: reply, **_GENERATING}, body, is_costly=True)


def _open(path: str, handler: Any, summary: str, replies: dict[int, Reply]) -> Route:
    return Route("GET", path, handler, summary, replies)


_GENERATED = Reply("The answer, in a list, or its events.",
                   {JSON: list[tgi.Generated], EVENTS: tgi.StreamEvent | tgi.Error}, _ALL_TIMES)
_COMPLETION = Reply("The answer, or its chunks and `[DONE]`.",
                    {JSON: openai.Completion, EVENTS: openai.Completion | openai.OpenAIError}, _TIMES)
_CHAT = Reply("The answer, or its chunks and `[DONE]`.",
              {JSON: openai.ChatCompletion, EVENTS: openai.ChatChunk | openai.OpenAIError}, _ALL_TIMES)
_VERTEX = _costly("/vertex", vertex.vertex, "Vertex AI's predictions.", vertex.VertexBody,
                  Reply("A text for each instance.", {JSON: vertex.Predictions}))

_ROUTES = (
    _costly("/", native.compat_generate, "Generate; a stream if `stream` is true.", CompatBody, _GENERATED),
    _costly("/generate", native.generate, "Generate, and answer at the end.", GenerateBody,
            Reply("The answer.", {JSON: tgi.Generated}, _ALL_TIMES)),
    _costly("/generate_stream", native.generate_stream, "Generate, with an event a token.", GenerateBody,
            Reply("The events; a failure is the last.", {EVENTS: tgi.StreamEvent | tgi.Error}, _COMPUTE)),
    _costly("/v1/completions", completions.completions, "OpenAI's completions.", CompletionBody, _COMPLETION),
    _costly("/v1/chat/completions", chat.chat_completions, "OpenAI's chat completions.", ChatBody, _CHAT),
    _costly("/invocations", sagemaker.invocations, "SageMaker's: as /, /v1/chat/completions or /v1/completions.",
            CompatBody | ChatBody | CompletionBody,
            Reply("What the other route answers.",
                  {JSON: list[tgi.Generated] | openai.ChatCompletion | openai.Completion,
                   EVENTS: tgi.StreamEvent | openai.ChatChunk | openai.Completion | tgi.Error
                           | openai.OpenAIError}, _TIMES)),
    _VERTEX,
    Route("POST", "/tokenize", info.tokenize, "The tokens of a text.",
          {200: Reply("The tokens.", {JSON: list[tgi.PlacedToken]}), **_READING}, GenerateBody, is_costly=True),
    Route("POST", "/chat_tokenize", chat.chat_tokenize, "The prompt of a conversation, and its tokens.",
          {200: Reply("Both.", {JSON: tgi.ChatTokens}), **_READING}, ChatBody, is_costly=True),
    _open("/info", info.info, "The model, and the limits of a request.", {200: Reply("Both.", {JSON: tgi.Info})}),
    _open("/v1/models", info.models, "OpenAI's list of models, of one.", {200: Reply("It.", {JSON: openai.Models})}),
    _open("/metrics", info.metrics, "Figures for Prometheus.", {200: Reply("They.", {TEXT: str})}),
    _open("/", for_browsers(health.health), "A page to try the model, for browsers; for others as /health.",
          {**_HEALTH, 200: Reply("The page; or nothing, and it is.")}),
    *(_open(path, health.health, "Whether requests are taken.", _HEALTH) for path in ("/health", "/ping")),
    _open("/readyz", health.readyz, "Whether a request would be computed now.", _HEALTH),
    _open("/livez", health.livez, "Whether the server makes progress.", _HEALTH),
)


def routes(version: str, more: Sequence[Route] = (), has_key: bool = False) -> list[Route]:
    """Returns all routes of a server of this version that has `more` of them, with those that describe them all."""
    all_routes = [*_ROUTES, *more]
    docs = Docs(all_routes, version, has_key)
    all_routes += [
        *page_routes(),
        _open("/docs", docs.page, "This, for readers.", {200: Reply("A page.", {"text/html": str})}),
        _open("/api-doc/openapi.json", docs.document, "This, for programs.",
              {200: Reply("The OpenAPI document.", {JSON: dict[str, Any]})}),
    ]
    return all_routes


_SERVED_ANYWAY = {("POST", "/vertex"), ("GET", "/"), ("GET", "/health"), ("GET", "/ping")}


def vertex_routes(predict: str | None, health_check: str | None) -> list[Route]:
    """At the paths that Vertex AI names, where they are not served anyway. InvalidArgument if one is another's."""
    wanted = [replace(_VERTEX, path=predict)] if predict else []
    if health_check:
        wanted.append(_open(health_check, health.health, "Whether requests are taken.", _HEALTH))
    served = {(route.method, route.path) for route in routes("")}
    new = [route for route in wanted if (route.method, route.path) not in _SERVED_ANYWAY]
    for route in new:
        if (route.method, route.path) in served:
            raise InvalidArgument(f"AIP_PREDICT_ROUTE or AIP_HEALTH_ROUTE: {route.path} is a route of the server's own")
    return new
