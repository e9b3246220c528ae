"""The lists of models as Anthropic has them, for its clients at the paths that OpenAI's have, too."""

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from penstock.router.api.anthropic.failures import VERSION
from penstock.router.api.http.access import Handler
from penstock.router.api.http.body import json_response
from penstock.router.api.http.named_model import named_model
from penstock.router.errors import ValidationError
from penstock.router.generation.services import SERVICES, Services

MAX_MODELS = 1000
"""The most models of a page."""
_PAGE = 20
_UNKNOWN_TIME = "1970-01-01T00:00:00Z"
"""Anthropic's time for a model of which it is not known when it was made."""


def for_anthropic(ours: Handler, others: Handler) -> Handler:
    """Returns a handler that leaves requests with Anthropic's version header to `ours`, and all else to `others`."""
    async def choose(request: web.Request) -> web.StreamResponse:
        return await (ours if VERSION in request.headers else others)(request)

    return choose


async def models(request: web.Request) -> web.Response:
    """Answers with a page of the models and their adapters."""
    found = list(_described(request.app[SERVICES]))
    names = [each["id"] for each in found]
    limit = _limit(request.query.get("limit"))
    before, after = request.query.get("before_id"), request.query.get("after_id")
    if before is not None:
        found = found[:_place(before, names, "before_id")]
        page = found[-limit:]
    else:
        found = found[0 if after is None else _place(after, names, "after_id") + 1:]
        page = found[:limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return json_response({"data": page, "has_more": len(page) < len(found), **ends})


async def model(request: web.Request) -> web.Response:
    """Answers with one of them."""
    return json_response(named_model(request, _described(request.app[SERVICES])))


def _limit(text: str | None) -> int:
    if text is None:
        return _PAGE
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:5]) <= MAX_MODELS):
        raise ValidationError(f"`limit` must be a number from 1 to {MAX_MODELS}. Given: \"{text:.40}\"")
    return int(text)


def _place(name: str, names: list[str], where: str) -> int:
    if name not in names:
        raise ValidationError(f"`{where}` must be the id of a model. Given: \"{name:.100}\"")
    return names.index(name)


def _described(services: Services) -> Iterator[dict[str, Any]]:
    """Yields each model and its adapters, with the most tokens of a prompt, and of an answer."""
    for listed in services.listed():
        service = listed.service
        limits = {} if service is None else {
            "max_input_tokens": service.limits.max_input_tokens, "max_tokens": service.limits.max_total_tokens - 1}
        for name in (listed.name, *(each.name for each in listed.adapters)):
            yield {"type": "model", "id": name, "display_name": name, "created_at": _UNKNOWN_TIME,
                   "lifecycle": "active", **limits}
