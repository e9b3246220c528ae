"""All routes, each with what it takes and what it may answer."""

from typing import Any

from router.api import completions, health, info, native, shapes
from router.api.openapi import Docs
from router.api.routes import EVENTS, JSON, TEXT, Reply, Route
from router.api.schemas import CompatBody, CompletionBody, GenerateBody

_READING = {
    400: Reply("The body is no JSON.", {TEXT: str}),
    401: Reply("The API key is missing or another one.", headers={"www-authenticate": "Bearer"}),
    408: Reply("The body did not come in time.", {TEXT: str}),
    413: Reply("The body is longer than the limit.", {TEXT: str}),
    415: Reply("The content type is not JSON.", {TEXT: str}),
    422: Reply("The body has another shape (text), or breaks a rule (JSON).",
               {TEXT: str, JSON: shapes.Error | shapes.OpenAIError}),
    500: Reply("A fault of the server.", {JSON: shapes.Error}),
}
_GENERATING = {
    **_READING,
    424: Reply("The request failed while it ran.", {JSON: shapes.Error}),
    429: Reply("As many requests as may be are in the server.", {JSON: shapes.Error}),
    503: Reply("No shards are there to answer.", {JSON: shapes.Error}),
}
_HEALTH = {
    200: Reply("It is."),
    503: Reply("It is not, for the reason given.", {JSON: shapes.Error}),
}
_COMPUTE = {"x-compute-type": "What it runs on.", "x-compute-characters": "Characters of the prompt."}
_TIMES = {
    **_COMPUTE,
    **{f"x-{name}-time": "Milliseconds." for name in ("total", "validation", "queue", "inference")},
    "x-time-per-token": "Milliseconds.", "x-prompt-tokens": "Tokens of the prompt.",
    "x-generated-tokens": "Tokens of the answer.",
}


def _costly(path: str, handler: Any, summary: str, body: Any, reply: Reply) -> Route:
    return Route("POST", path, handler, summary, {200: reply, **_GENERATING}, body, is_costly=True)


def _open(path: str, handler: Any, summary: str, replies: dict[int, Reply]) -> Route:
    return Route("GET", path, handler, summary, replies)


_ROUTES = (
    _costly("/", native.compat_generate, "Generate; a stream if `stream` is true.", CompatBody,
            Reply("The answer, in a list, or its events.",
                  {JSON: list[shapes.Generated], EVENTS: shapes.StreamEvent | shapes.Error}, _TIMES)),
    _costly("/generate", native.generate, "Generate, and answer at the end.", GenerateBody,
            Reply("The answer.", {JSON: shapes.Generated}, _TIMES)),
    _costly("/generate_stream", native.generate_stream, "Generate, with an event a token.", GenerateBody,
            Reply("The events; a failure is the last.", {EVENTS: shapes.StreamEvent | shapes.Error}, _COMPUTE)),
    _costly("/v1/completions", completions.completions, "OpenAI's completions.", CompletionBody,
            Reply("The answer or its chunks, and `[DONE]`.",
                  {JSON: shapes.Completion, EVENTS: shapes.Completion | shapes.OpenAIError}, _TIMES)),
    Route("POST", "/tokenize", info.tokenize, "The tokens of a text.",
          {200: Reply("The tokens.", {JSON: list[shapes.PlacedToken]}), **_READING}, GenerateBody, is_costly=True),
    _open("/info", info.info, "The model, and the limits of a request.", {200: Reply("Both.", {JSON: shapes.Info})}),
    _open("/v1/models", info.models, "OpenAI's list of models, of one.", {200: Reply("It.", {JSON: shapes.Models})}),
    _open("/metrics", info.metrics, "Figures for Prometheus.", {200: Reply("They.", {TEXT: str})}),
    _open("/", health.health, "Whether requests are taken.", _HEALTH),
    _open("/health", health.health, "Whether requests are taken.", _HEALTH),
    _open("/ping", health.health, "Whether requests are taken.", _HEALTH),
    _open("/readyz", health.readyz, "Whether a request would be computed now.", _HEALTH),
    _open("/livez", health.livez, "Whether the server makes progress.", _HEALTH),
)


def routes(version: str) -> list[Route]:
    """With those that describe them all, in a server of this version."""
    all_routes = list(_ROUTES)
    docs = Docs(all_routes, version)
    all_routes += [
        _open("/docs", docs.page, "This, for readers.", {200: Reply("A page.", {"text/html": str})}),
        _open("/api-doc/openapi.json", docs.document, "This, for programs.",
              {200: Reply("The OpenAPI document.", {JSON: dict[str, Any]})}),
    ]
    return all_routes
