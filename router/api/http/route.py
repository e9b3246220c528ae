"""A route: its handler, which key it takes, and what the OpenAPI document says of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from penstock.router.api.http.access import Access, Admission, Handler, guard
from penstock.router.generation.services import PATH_MODEL

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"

_OF_ONE_MODEL = ("Text Generation Inference", "Text Embeddings Inference")
"""The headings of routes whose bodies name no model."""

Content = Mapping[str, Any]
"""The type of what is sent, by media type; pydantic describes it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with one status. `meaning` is a sentence for readers of the documentation."""

    meaning: str
    content: Content = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """The names of headers, each with a sentence that says what it tells."""


@dataclass(frozen=True, slots=True)
class Route:
    """`body` is the type that the handler parses, None if it reads none; `replies` are by status."""

    method: str
    path: str
    handler: Handler
    summary: str
    replies: Mapping[int, Reply]
    body: Any = None
    needs_body: bool = True
    """Whether a body must be there, where the handler parses one."""
    media: str = JSON
    """The media type of the body."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The names of the parameters behind a `?`, each with a sentence that says what it does."""
    is_costly: bool = False
    """Whether it takes an API key."""
    is_private: bool = False
    """Whether it takes the key of the server's state, if there is one; a costly one takes that, or an API key."""
    tag: str = ""
    """The heading under which the OpenAPI document has it; it does not have a route without one."""

    @property
    def canonical(self) -> str:
        """The path with the names of its variables alone, without the patterns that they match."""
        return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", self.path)


def admission(route: Route, access: Access) -> Admission | None:
    """Returns the check of the route's users, or None if anybody may use it."""
    if route.is_costly and route.is_private:
        return access.may_see_use if access.api_keys or access.metrics_keys else None
    if route.is_costly and access.api_keys:
        return access.may_generate
    return access.may_read_state if route.is_private and access.metrics_keys else None


def for_models(routes: Sequence[Route]) -> list[Route]:
    """Returns the routes whose bodies name no model once more, below the names of models."""
    return [replace(route, path=f"/models/{{{PATH_MODEL}:.+?}}{route.path}", tag="") for route in routes
            if route.tag in _OF_ONE_MODEL]


def add_routes(app: web.Application, routes: Sequence[Route], access: Access) -> None:
    """Adds the routes to the app, each with a slash behind it, too, unless that is another route; a route for GET
    answers HEAD too."""
    paths = {route.path for route in routes}
    for route in routes:
        is_admitted = admission(route, access)
        handler = guard(route.handler, is_admitted) if is_admitted else route.handler
        has_twin = not route.path.endswith("/") and f"{route.path}/" not in paths
        for path in (route.path, f"{route.path}/") if has_twin else (route.path,):
            if route.method == "GET":
                app.router.add_get(path, handler)
            else:
                app.router.add_route(route.method, path, handler)
