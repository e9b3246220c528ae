"""Handlers of KServe's routes, and of Triton's extensions: each reads a body, and sends what is made of it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.http.body import READ_AHEAD, json_response, parse_json, to_body
from penstock.router.api.http.headers import wish_of
from penstock.router.api.http.sse import ADMITTED, AnswerEvent, EventStyle, stream_events
from penstock.router.api.kserve import generation, metadata
from penstock.router.api.kserve.bodies import IndexBody, RepositoryBody, TextInputBody
from penstock.router.api.kserve.details import stream_details, whole_details
from penstock.router.api.kserve.failures import kserve_event
from penstock.router.api.kserve.inference import Inference, of_text
from penstock.router.api.kserve.inferring import infer as infer_tensors
from penstock.router.api.kserve.inferring import streams
from penstock.router.api.kserve.messages import fields, head, infer_response, read_any, read_inference
from penstock.router.api.kserve.models import Named, all_listed, all_loaded, described, ids_of, model_of, pipeline_state
from penstock.router.errors import Unhealthy
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish
from penstock.router.generation.services import SERVICES, Services, first_of

_EVENTS = {"content-type": "text/event-stream; charset=utf-8"}


async def server(request: web.Request) -> web.Response:
    """Answers with the metadata of the server."""
    return json_response(metadata.server())


async def live(request: web.Request) -> web.Response:
    """Answers 200 while requests are taken."""
    if not first_of(request).engine.is_healthy:
        raise Unhealthy
    return json_response({"live": True})


async def ready(request: web.Request) -> web.Response:
    """Answers 200 if a request to the model that is always loaded would be computed now."""
    _check_ready(Named(first_of(request), ""))
    return json_response({"ready": True})


async def model_ready(request: web.Request) -> web.Response:
    """Answers 200 if a request to the model would be computed now."""
    if (state := pipeline_state(request)) is None:
        named = described(request)
        _check_ready(named)
        return json_response({"name": named.name, "ready": True})
    if state != "ready":
        raise Unhealthy(f"a model of its steps is {state}")
    return json_response({"name": request.match_info["model"], "ready": True})


def _check_ready(named: Named) -> None:
    if not named.is_ready:
        raise Unhealthy("the shards are being started" if named.service.engine.is_healthy else "unhealthy")


async def model(request: web.Request) -> web.Response:
    """Answers with the metadata of the model."""
    return json_response(metadata.model(described(request), request.app[SERVICES]))


async def config(request: web.Request) -> web.Response:
    """Answers with the configuration of the model."""
    return json_response(metadata.config(described(request)))


async def stats(request: web.Request) -> web.Response:
    """Answers with the statistics of the model that the path names, or of all."""
    models = [described(request)] if "model" in request.match_info else all_loaded(request.app[SERVICES])
    return json_response(metadata.stats(models))


async def index(request: web.Request) -> web.Response:
    """Answers with the models of the server and their states."""
    body = await _read(request, IndexBody)
    return json_response(metadata.index(all_listed(request.app[SERVICES]), bool(body.ready)))


async def load(request: web.Request) -> web.Response:
    """Answers when the model that the path names is loaded."""
    services, names = await _read_repository(request)
    for name in names:
        await services.load(name)
    return json_response({})


async def unload(request: web.Request) -> web.Response:
    """Answers when the requests that use the model have ended, and its memory is free."""
    services, names = await _read_repository(request)
    for name in names:
        await services.unload(name)
    return json_response({})


async def _read_repository(request: web.Request) -> tuple[Services, list[str]]:
    """Returns the models, and the names of those that are to be loaded or unloaded."""
    body = await _read(request, RepositoryBody)
    metadata.check_parameters(body.parameters or ())
    services = request.app[SERVICES]
    return services, ids_of(services, request.match_info["model"])


async def _read(request: web.Request, schema: type[Any]) -> Any:
    """Returns a body that may be empty."""
    content = await read_any(request)
    return to_body(parse_json(content, first_of(request).limits) if content else {}, schema)


async def infer(request: web.Request) -> web.StreamResponse:
    """Answers with tensors that are made of tensors."""
    inference, body = await read_inference(request)
    with Asking(inference.model.service) as asking:
        _, inferred = await infer_tensors(asking, inference, wish_of(request))
        return infer_response(inference, inferred, body)


async def generate(request: web.Request) -> web.StreamResponse:
    """Answers with a text, in one object."""
    inference = await _read_generate(request)
    with Asking(inference.model.service) as asking:
        whole, inferred = await infer_tensors(asking, inference, wish_of(request))
        content = {**head(inference), **fields(inferred.tensors)}
        if whole is not None and whole.asked.settings.switch("details"):
            content["details"] = whole_details(whole)
        return json_response(content, headers=inferred.headers)


async def generate_stream(request: web.Request) -> web.StreamResponse:
    """Answers with an event per token, or with one event if `stream` is false."""
    inference = await _read_generate(request)
    with Asking(inference.model.service) as asking:
        wish, style = wish_of(request), EventStyle(kserve_event, waits=True)
        if not streams(inference, default=True):
            return await stream_events(request, _EVENTS, _one(asking, inference, wish), style)
        asked = await generation.read(inference, wish, is_stream=True)
        headers = {**generation.head(asking.service, asked), **_EVENTS}
        return await stream_events(request, headers, _events(asking, inference, asked), style, asked.identity)


async def _one(asking: Asking, inference: Inference, wish: Wish) -> AsyncGenerator[AnswerEvent]:
    _, inferred = await infer_tensors(asking, inference, wish)
    yield ADMITTED
    yield AnswerEvent(0, orjson.dumps({**head(inference), **fields(inferred.tensors)}))


async def _events(
    asking: Asking, inference: Inference, asked: generation.Generating
) -> AsyncGenerator[AnswerEvent]:
    has_details = asked.settings.switch("details")
    async with aclosing(generation.parts(asking, asked)) as parts:
        async for part in parts:
            if part is None:
                yield ADMITTED
                continue
            content = {**head(inference), **fields(part.tensors)}
            if has_details:
                content["details"] = stream_details(part)
            yield AnswerEvent(part.answer.index, orjson.dumps(content))


async def _read_generate(request: web.Request) -> Inference:
    content = None if READ_AHEAD in request else await read_any(request)
    named = await model_of(request)
    given = request.pop(READ_AHEAD) if content is None else parse_json(content, named.service.limits)
    body = to_body(given, TextInputBody)
    parameters = {**(body.parameters or {}), **(body.model_extra or {})}
    return of_text(named, body.text_input, body.id or "", parameters)


