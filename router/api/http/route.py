"""What a route is: all that serves it, guards it and documents it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from penstock.router.api.http.access import Access, Handler

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"

Content = Mapping[str, Any]
"""By media type what it holds, as a type for pydantic to describe; None where it is empty."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client gets with one status."""

    meaning: str
    content: Content = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names, with what they tell."""


@dataclass(frozen=True, slots=True)
class Route:
    """`body` is the type that the handler parses, None if it reads none; `replies` are by status."""

    method: str
    path: str
    handler: Handler
    summary: str
    replies: Mapping[int, Reply]
    body: Any = None
    is_costly: bool = False
    """Whether it takes the API key."""
    is_documented: bool = True
    """Whether the OpenAPI document has it."""


def add_routes(app: web.Application, routes: Sequence[Route], access: Access) -> None:
    """Serve them, and HEAD where there is GET."""
    for route in routes:
        handler = access.guard(route.handler) if route.is_costly else route.handler
        if route.method == "GET":
            app.router.add_get(route.path, handler)
        else:
            app.router.add_route(route.method, route.path, handler)
