"""The routes of KServe's Open Inference Protocol, and of Triton's extensions of it."""

from dataclasses import replace
from typing import Any

from penstock.router.api.http.access import Handler
from penstock.router.api.http.route import EVENTS, JSON, Reply, Route
from penstock.router.api.kserve import handlers, replies
from penstock.router.api.kserve.bodies import IndexBody, InferBody, RepositoryBody, TextInputBody
from penstock.router.api.usual_replies import GENERATING, UNAUTHORIZED

KSERVE = "KServe"
"""The heading of the routes in the OpenAPI document."""
_MODEL = "/v2/models/{model:.+}"
_ALONE = "/v2/models/{model:.+(?<!/infer)(?<!/generate)(?<!/generate_stream)(?<!/)}"
"""The path of a model itself, which leaves those below it to the methods that they are for."""
_BINARY = "application/octet-stream"
_ERROR = {JSON: replies.KserveError}
_READING = {
    400: Reply("The body can't be read, or a value breaks a rule.", _ERROR),
    401: replace(UNAUTHORIZED, content=_ERROR),
    **{status: replace(GENERATING[status], content=_ERROR) for status in (408, 413, 415, 500)},
}
_NAMED = {404: Reply("There is no such model, or no such version of it.", _ERROR)}
_COMPUTING = {
    **_READING, **_NAMED,
    **{status: replace(GENERATING[status], content=_ERROR) for status in (409, 424, 429, 503)}}
_UNREADY = {503: Reply("The answer to the question is no, for the reason in the body.", _ERROR,
                       GENERATING[503].headers)}


def _get(path: str, handler: Handler, summary: str, content: Any, others: dict[int, Reply]) -> list[Route]:
    return [Route("GET", path, handler, summary, {200: Reply(summary, {JSON: content}), **others}, tag=KSERVE)]


def _of_model(suffix: str, handler: Handler, summary: str, content: Any, others: dict[int, Reply]) -> list[Route]:
    return [route for path in (f"{_MODEL}/versions/{{version}}{suffix}", f"{_MODEL}{suffix}" if suffix else _ALONE)
            for route in _get(path, handler, summary, content, {**others, **_NAMED})]


def _post(suffix: str, handler: Handler, summary: str, reply: Reply, body: object) -> list[Route]:
    return [Route("POST", path, handler, summary, {200: reply, **_COMPUTING}, body, is_costly=True, tag=KSERVE)
            for path in (f"{_MODEL}/versions/{{version}}{suffix}", f"{_MODEL}{suffix}")]


def _repository(path: str, handler: Handler, summary: str, reply: Reply, body: object) -> Route:
    return Route("POST", path, handler, summary, {200: reply, **_READING}, body, needs_body=False, is_costly=True,
                 tag=KSERVE)


KSERVE_ROUTES = (
    *_get("/v2", handlers.server, "Describes the server.", replies.ServerMetadata, {}),
    *_get("/v2/health/live", handlers.live, "Tells whether the server takes requests.", replies.Live, _UNREADY),
    *_get("/v2/health/ready", handlers.ready, "Tells whether a request would be computed now.", replies.Ready,
          _UNREADY),
    *_post("/infer", handlers.infer, "Makes tensors of tensors: texts, vectors or scores of texts.",
           Reply("The tensors; or JSON, and the data of tensors behind it.",
                 {JSON: replies.InferredTensors, _BINARY: str}), InferBody),
    *_post("/generate", handlers.generate, "Generates a text.",
           Reply("The text.", {JSON: replies.GeneratedTensors}), TextInputBody),
    *_post("/generate_stream", handlers.generate_stream, "Generates a text, and sends an event per token.",
           Reply("An event per token; an error comes as the last event.",
                 {EVENTS: replies.GeneratedTensors | replies.KserveError}), TextInputBody),
    *_of_model("/ready", handlers.model_ready, "Tells whether a request to the model would be computed now.",
               replies.ModelReady, _UNREADY),
    *_of_model("/config", handlers.config, "Describes the model as Triton's configuration does.", dict[str, Any], {}),
    *(replace(route, is_private=True, replies={**route.replies, 401: _READING[401]}) for route in (
        *_get("/v2/models/stats", handlers.stats, "Gives the statistics of all models.", replies.Statistics, {}),
        *_of_model("/stats", handlers.stats, "Gives the statistics of the model.", replies.Statistics, {}))),
    *_of_model("", handlers.model, "Describes the model.", replies.ModelMetadata, {}),
    _repository("/v2/repository/index", handlers.index, "Lists the models and their states.",
                Reply("The models.", {JSON: list[replies.IndexedModel]}), IndexBody),
    _repository("/v2/repository/models/{model:.+}/load", handlers.load, "Loads a model.",
                Reply("The model is loaded.", {JSON: dict[str, Any]}), RepositoryBody),
    _repository("/v2/repository/models/{model:.+}/unload", handlers.unload, "Unloads a model.",
                Reply("The model is unloaded.", {JSON: dict[str, Any]}), RepositoryBody),
)
