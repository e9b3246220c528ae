"""OpenAI's `GET /v1/models` and `GET /v1/models/{model}`."""

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from penstock.router.api.http.body import json_response
from penstock.router.api.http.named_model import named_model
from penstock.router.generation.service import SERVICES, Services


async def models(request: web.Request) -> web.Response:
    """Answers with a list of the models and their adapters. Codex, which tells its version, reads another list, of what
    it is to know of models beside its own knowledge: nothing."""
    codex: dict[str, Any] = {"models": []} if "client_version" in request.query else {}
    return json_response({"object": "list", "data": list(_described(request.app[SERVICES])), **codex})


async def model(request: web.Request) -> web.Response:
    """Answers with one of them."""
    return json_response(named_model(request, _described(request.app[SERVICES])))


def _described(services: Services) -> Iterator[dict[str, Any]]:
    """Yields each model and its adapters, of which it is told as vLLM does whose they are and where they come from."""
    for service in services:
        model_id = service.info.model_id
        common = {"object": "model", "created": 0, "owned_by": model_id}
        yield {"id": model_id, **common}
        for each in service.adapters:
            yield {"id": each.name, **common, "root": each.origin, "parent": model_id}
