"""The model that a path names."""

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from penstock.router.errors import ModelNotFound


def named_model(request: web.Request, described: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the description, of those of all models, whose `id` the path has as `model`: a name that may have slashes
    in it. Raises ModelNotFound."""
    name = request.match_info["model"].removesuffix("/")
    found = next((each for each in described if each["id"] == name), None)
    if found is None:
        raise ModelNotFound(name)
    return found
