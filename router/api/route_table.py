"""The table of all routes: the path, the handler, the body that it takes and the answers that it may give."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.router.api import usage
from penstock.router.api.clouds import pooling, sagemaker, vertex
from penstock.router.api.explaining import EXPLAIN
from penstock.router.api.http import receipts
from penstock.router.api.http.access import ANYBODY, Access
from penstock.router.api.http.docs import Docs, page_routes
from penstock.router.api.http.page import FILES, for_browsers
from penstock.router.api.http.route import EVENTS, JSON, TEXT, Reply, Route
from penstock.router.api.kserve_routes import KSERVE_ROUTES
from penstock.router.api.message_routes import ANTHROPIC, MESSAGE_ROUTES, MODEL_ROUTES
from penstock.router.api.openai import adapters, chat, completions, model_changes
from penstock.router.api.openai import replies as openai
from penstock.router.api.openai.bodies import ChatBody, CompletionBody
from penstock.router.api.pooling_routes import POOLING_ROUTES
from penstock.router.api.response_routes import RESPONSE_ROUTES
from penstock.router.api.store_routes import STORE_ROUTES
from penstock.router.api.tei import handlers as tei_handlers
from penstock.router.api.tei import replies as tei
from penstock.router.api.tei.bodies import TokenizeBody
from penstock.router.api.tei_routes import TEI_ROUTES, describe, shared
from penstock.router.api.tgi import generate, health, info
from penstock.router.api.tgi import replies as tgi
from penstock.router.api.tgi.bodies import CompatBody, GenerateBody
from penstock.router.api.usual_replies import (
    GENERATING,
    LATER,
    OPENAI_GENERATING,
    OPENAI_READING,
    SPLITTING,
    UNAUTHORIZED,
    refusing,
)
from penstock.system.arguments import InvalidArgument

_TGI, _OPENAI, _CLOUDS, _OPERATION = "Text Generation Inference", "OpenAI", "Clouds", "Operation"

_HEALTH = {
    200: Reply("The answer to the question is yes; the body is empty."),
    503: Reply("The answer to the question is no, for the reason in the body.", {JSON: tgi.Error}, LATER),
}
_COMPUTE = {"x-compute-type": "The hardware that the server runs on.",
            "x-compute-characters": "The number of characters of the prompt.",
            "penstock-answer": "Names the answer, which can be gone on with and repeated by it."}
_TIMES = {
    **_COMPUTE,
    **{f"x-{name}-time": f"Milliseconds {what}." for name, what in (
        ("total", "from the request to the end of the answer"), ("validation", "spent on checking the request"),
        ("queue", "spent waiting for the first step"), ("inference", "spent generating the answer"))},
    "x-time-per-token": "Milliseconds per generated token.",
    "x-prompt-tokens": "The number of tokens of the prompt.",
    "x-generated-tokens": "The number of tokens of the answer.",
}
_ALL_TIMES = {**_TIMES, "x-compute-time": "Seconds from the request to the end of the answer."}


def _costly(path: str, handler: Any, tag: str, summary: str, body: Any, reply: Reply) -> Route:
    return Route("POST", path, handler, summary, {200: reply, **GENERATING}, body, is_costly=True, tag=tag)


def _openais(path: str, handler: Any, summary: str, body: Any, reply: Reply) -> Route:
    return Route("POST", path, handler, summary, refusing({200: reply, **OPENAI_GENERATING}), body, is_costly=True,
                 tag=_OPENAI)


def _open(path: str, handler: Any, summary: str, replies: dict[int, Reply], tag: str = _OPERATION) -> Route:
    return Route("GET", path, handler, summary, replies, tag=tag)


def _private(path: str, handler: Any, summary: str, reply: Reply, tag: str = _OPERATION) -> Route:
    return Route("GET", path, handler, summary, {200: reply, 401: UNAUTHORIZED}, tag=tag, is_private=True)


_GENERATED = Reply("A list of one answer, or the events of a stream.",
                   {JSON: list[tgi.Generated], EVENTS: tgi.StreamEvent | tgi.Error}, _ALL_TIMES)
_COMPLETION = Reply("The completion, or the chunks of a stream, of which `[DONE]` is the last.",
                    {JSON: openai.Completion, EVENTS: openai.Completion | openai.OpenAIErrorEvent}, _TIMES)
_CHAT = Reply("The chat completion, or the chunks of a stream, of which `[DONE]` is the last.",
              {JSON: openai.ChatCompletion, EVENTS: openai.ChatChunk | openai.OpenAIErrorEvent}, _ALL_TIMES)
_VERTEX = shared(
    _costly("/vertex", vertex.vertex, _CLOUDS, "Makes an answer of each instance, for Google Vertex AI.",
            vertex.VertexBody, Reply("The texts, vectors or scores, in the order of the instances.",
                                     {JSON: vertex.Predictions},
                                     {"penstock-answer": "Names the texts, with commas between them."})),
    pooling.vertex, pooling.PoolingPredictions, pooling.PoolingInstances)
_INVOCATIONS = shared(Route(
    "POST", "/invocations", sagemaker.invocations,
    "Answers as `/`, `/v1/chat/completions` or `/v1/completions` answers the body, for Amazon SageMaker.",
    {200: Reply("The answer of the route whose body was sent.",
                {JSON: list[tgi.Generated] | openai.ChatCompletion | openai.Completion,
                 EVENTS: tgi.StreamEvent | openai.ChatChunk | openai.Completion | tgi.Error | openai.OpenAIErrorEvent},
                _TIMES),
     **{status: replace(reply, content={TEXT: str, JSON: tgi.Error | openai.OpenAIError})
        for status, reply in {404: OPENAI_GENERATING[404], **GENERATING}.items()}},
    CompatBody | ChatBody | CompletionBody, is_costly=True, tag=_CLOUDS),
    pooling.invocations, pooling.PoolingAnswer, pooling.PoolingBody)
_CHANGING = refusing({
    **OPENAI_READING,
    400: Reply("The body is not JSON, or does not have the route's fields, or the adapter can't be loaded."),
    403: Reply("Clients of this server can't change its adapters."),
})
_ADAPTER_ROUTES = (
    Route("POST", "/v1/load_lora_adapter", adapters.load, "Adds an adapter (LoRA), from a folder on the server.",
          {200: Reply("The adapter can be named by requests.", {TEXT: str}), **_CHANGING}, adapters.LoadAdapterBody,
          is_costly=True, tag=_OPERATION),
    Route("POST", "/v1/unload_lora_adapter", adapters.unload, "Removes an adapter, once its requests are answered.",
          {200: Reply("New requests can't name the adapter any more.", {TEXT: str}), **_CHANGING,
           404: Reply("There is no such adapter.", {JSON: openai.OpenAIError})}, adapters.UnloadAdapterBody,
          is_costly=True, tag=_OPERATION),
)
_MODEL_CHANGES = {
    **OPENAI_READING, 404: Reply("There is no such model.", {JSON: openai.OpenAIError}),
    403: Reply("Clients of this server can't change its models.", {JSON: openai.OpenAIError}),
    503: Reply("The model could not be loaded, for the reason in the body.", {JSON: openai.OpenAIError}, LATER),
}


def _changing(path: str, handler: Any, summary: str, body: Any, meaning: str) -> Route:
    return Route("POST", path, handler, summary, refusing(
        {200: Reply(meaning, {JSON: openai.ModelState}), **_MODEL_CHANGES}), body, is_costly=True, tag=_OPERATION)


_MODEL_ROUTES = (
    _changing("/v1/load_model", model_changes.load, "Loads one of the server's models.", model_changes.ModelBody,
              "The model is loaded."),
    _changing("/v1/unload_model", model_changes.unload, "Unloads a model, once its requests are answered.",
              model_changes.ModelBody, "The model is unloaded; a request for it loads it again."),
    _changing("/v1/alias_model", model_changes.alias, "Lets a name stand for models, which are loaded first.",
              model_changes.AliasBody, "The name stands for them from now on."),
)
_TEXT_ROUTES = (
    shared(_costly("/", generate.compat_generate, _TGI, "Generates an answer, streamed if `stream` is true; or answers "
                   "as the route of vectors or scores that the body is for.", CompatBody, _GENERATED),
           pooling.invocations, pooling.PoolingAnswer, pooling.PoolingBody),
    _costly("/generate", generate.generate, _TGI, "Generates an answer, and sends it when it is whole.", GenerateBody,
            Reply("The answer.", {JSON: tgi.Generated}, _ALL_TIMES)),
    _costly("/generate_stream", generate.generate_stream, _TGI, "Generates an answer, and sends an event per token.",
            GenerateBody, Reply("An event per token; an error comes as the last event.",
                                {EVENTS: tgi.StreamEvent | tgi.Error}, _COMPUTE)),
    _openais("/v1/completions", completions.completions, "Completes one or several prompts.", CompletionBody,
             _COMPLETION),
    _openais("/v1/chat/completions", chat.chat_completions, "Answers a conversation.", ChatBody, _CHAT),
    _INVOCATIONS,
    _VERTEX,
    shared(Route("POST", "/tokenize", info.tokenize, "Splits a text into the model's tokens.",
                 {200: Reply("The tokens, each with its place in the text; of a model that makes vectors or scores a "
                             "list for each text.", {JSON: list[tgi.PlacedToken]}), **SPLITTING},
                 GenerateBody, is_costly=True, tag=_TGI),
           tei_handlers.tokenize, list[list[tei.SimpleToken]], TokenizeBody),
    Route("POST", "/chat_tokenize", chat.chat_tokenize, "Writes a conversation as the model's prompt, and splits it.",
          {200: Reply("The prompt and its tokens.", {JSON: tgi.ChatTokens}), **SPLITTING}, ChatBody, is_costly=True,
          tag=_TGI),
)
_USAGE = Route(
    "GET", "/v1/usage", usage.usage, "Gives what a key has used and what that costs, by day and model.",
    dict(sorted(refusing({
        200: Reply("The totals, and the key's budget.", {JSON: usage.UsagePage}),
        **{status: OPENAI_READING[status] for status in (401, 500)},
        400: Reply("A parameter is unknown, or its value breaks a rule."),
        501: Reply("The server keeps no accounts: it has no --prices."),
        503: Reply("The database can't be reached now.", headers=LATER)}).items())),
    query=usage.QUERY, is_costly=True, is_private=True, tag=_OPERATION)
_STATE_ROUTES = (
    shared(_private("/info", info.info, "Describes the model and the limits of a request.",
                    Reply("The model, the limits, and how numbers are computed.", {JSON: tgi.Info}), _TGI),
           describe, tei.PoolingInfo),
    *MODEL_ROUTES,
    EXPLAIN,
    _private("/metrics", info.metrics, "Gives the server's metrics, for Prometheus.",
             Reply("The metrics in Prometheus's text format.", {TEXT: str})),
    _USAGE,
    _open("/", for_browsers(health.health), "Gives browsers a page to try the model; answers others as `/health` does.",
          {**_HEALTH, 200: Reply("The page; or an empty body, which means that requests are taken.")}),
    _open("/receipt-key", receipts.public_key, "Gives the key by which signatures of receipts are checked.",
          {200: Reply("The key, in PEM.", {JSON: dict[str, str]}),
           404: Reply("Receipts of this server are not signed; the body is empty.")}),
    *(_open(path, health.health, "Tells whether the server takes requests.", _HEALTH) for path in ("/health", "/ping")),
    _open("/api/hello", health.health, "Tells Claude Code, which asks at its start, whether the server takes requests.",
          _HEALTH, ANTHROPIC),
    _open("/readyz", health.readyz, "Tells whether a request would be computed now.", _HEALTH),
    _open("/livez", health.livez, "Tells whether the server makes progress.", _HEALTH),
)
_ROUTES = (*_TEXT_ROUTES, *TEI_ROUTES, *POOLING_ROUTES, *RESPONSE_ROUTES, *MESSAGE_ROUTES, *STORE_ROUTES,
           *KSERVE_ROUTES, *_ADAPTER_ROUTES, *_MODEL_ROUTES, *_STATE_ROUTES)


def routes(version: str, more: Sequence[Route] = (), access: Access = ANYBODY) -> list[Route]:
    """Returns all routes of a server of this version that has `more` of them, some in place of its own, with those that
    describe them all."""
    named = {(route.method, route.path) for route in more}
    all_routes = [*(route for route in _ROUTES if (route.method, route.path) not in named), *more]
    docs = Docs(all_routes, version, access)
    all_routes += [
        FILES,
        *page_routes(),
        _private("/docs", docs.page, "Gives a page that documents all routes and tries them out.",
                 Reply("The page.", {"text/html": str})),
        _private("/api-doc/openapi.json", docs.document, "Gives the OpenAPI document of all routes.",
                 Reply("The OpenAPI document.", {JSON: dict[str, Any]})),
    ]
    return all_routes


_SERVED_ANYWAY = {("POST", "/vertex"), ("GET", "/"), ("GET", "/health"), ("GET", "/ping")}


def vertex_routes(predict: str | None, health_check: str | None) -> list[Route]:
    """Returns routes at the paths that Vertex AI names, as far as those are not served anyway. They take the place of
    TEI's, as of `/predict`, which Vertex AI often names.

    Raises InvalidArgument if one of them is the path of another route.
    """
    wanted = [replace(_VERTEX, path=predict)] if predict else []
    if health_check:
        wanted.append(_open(health_check, health.health, "Tells whether the server takes requests.", _HEALTH, _CLOUDS))
    served = {(route.method, route.path) for route in routes("")} - {(route.method, route.path) for route in TEI_ROUTES}
    new = [route for route in wanted if (route.method, route.path) not in _SERVED_ANYWAY]
    for route in new:
        if (route.method, route.path) in served:
            raise InvalidArgument(f"AIP_PREDICT_ROUTE or AIP_HEALTH_ROUTE: {route.path} is a route of the server's own")
    return new
