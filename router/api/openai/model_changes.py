"""The routes by which clients load and unload models, and point aliases at them, in the manner of those of adapters."""

from aiohttp import web
from pydantic import Field

from penstock.router.api.http.body import json_response, read_body
from penstock.router.generation.services import SERVICES
from penstock.router.shapes import Body


class ModelBody(Body):
    """The body of `POST /v1/load_model` and `POST /v1/unload_model`."""

    model: str


class AliasBody(Body):
    """The body of `POST /v1/alias_model`: the models that the alias stands for from now on, each with the weight of its
    share of the requests; none removes it. A share of them, from 0 to 1, is sent to each model of `shadow`, too."""

    alias: str
    targets: dict[str, float]
    shadow: dict[str, float] = Field(default_factory=dict)


async def load(request: web.Request) -> web.Response:
    """Answers when the model is loaded."""
    body = await read_body(request, ModelBody)
    await request.app[SERVICES].load(body.model)
    return json_response({"id": body.model, "object": "model", "state": "ready"})


async def unload(request: web.Request) -> web.Response:
    """Answers when the requests that use the model have ended, and its memory is free."""
    body = await read_body(request, ModelBody)
    await request.app[SERVICES].unload(body.model)
    return json_response({"id": body.model, "object": "model", "state": "unloaded"})


async def alias(request: web.Request) -> web.Response:
    """Answers when the alias stands for its models."""
    body = await read_body(request, AliasBody)
    await request.app[SERVICES].point(body.alias, body.targets, body.shadow)
    return json_response({"id": body.alias, "object": "model", "targets": body.targets,
                          **({"shadow": body.shadow} if body.shadow else {})})
