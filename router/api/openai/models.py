"""OpenAI's `GET /v1/models` and `GET /v1/models/{model}`."""

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from penstock.contract.facts import Facts
from penstock.contract.pooling import GENERATES, encode_tasks
from penstock.router.api.http.body import json_response
from penstock.router.api.http.named_model import named_model
from penstock.router.generation.services import SERVICES, Services


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
    for listed in services.listed():
        name, service = listed.name, listed.service
        common = {"object": "model", "created": 0, "owned_by": name,
                  **({} if service is None else _abilities(service.facts)),
                  **({} if listed.state is None else {"state": listed.state}),
                  **({} if listed.source is None else {"source": listed.source}),
                  **({"steps": [*listed.steps]} if listed.steps else {}),
                  **({"targets": {**listed.targets}} if listed.targets else {}),
                  **({"shadow": {**listed.shadows}} if listed.shadows else {})}
        yield {"id": name, **common}
        for each in listed.adapters:
            yield {"id": each.name, **common, "root": each.origin, "parent": name}


def _abilities(facts: Facts) -> dict[str, Any]:
    """Returns the tasks of a model that makes vectors or scores, and their size or names."""
    if facts.tasks == GENERATES:
        return {}
    return {"tasks": encode_tasks(facts.tasks),
            **({"vector_size": facts.vector_size} if facts.vector_size else {}),
            **({"labels": list(facts.labels)} if facts.labels else {})}
