"""The routes whose requests may be for a pipeline: its steps run before the route's own handler, which answers for the
last model, and behind the answer."""

from dataclasses import replace
from typing import Any

from aiohttp import web

from penstock.router.api.http.body import READ_AHEAD, parse_json, read_json
from penstock.router.api.http.route import Route
from penstock.router.api.kserve.messages import read_any
from penstock.router.generation.piped import PIPED
from penstock.router.generation.services import SERVICES, client_of, first_of, named_in
from penstock.router.pipelines.pipelines import Pipelines
from penstock.router.pipelines.shapes import SHAPES, Shape


def piping(route: Route, pipelines: Pipelines) -> Route:
    """Returns a route whose requests may be for a pipeline, if it is one that those have."""
    shape = SHAPES.get(route.canonical) if route.method == "POST" else None
    if shape is None:
        return route

    async def handle(request: web.Request) -> web.StreamResponse:
        content = await _read(request)
        name = request.app[SERVICES].resolve(_named(request, content, shape), client_of(request))
        if name is not None and name in pipelines and isinstance(content, dict):
            content = await _pipe(request, content, shape, name, pipelines)
        request[READ_AHEAD] = content
        return await route.handler(request)

    return replace(route, handler=handle)


async def _read(request: web.Request) -> Any:
    if "model" in request.match_info:  # as KServe's routes do
        return parse_json(await read_any(request), first_of(request).limits)
    return await read_json(request)


def _named(request: web.Request, content: Any, shape: Shape) -> str | None:
    named = named_in(request) or request.match_info.get("model")
    if named is None and shape.model is not None and isinstance(content, dict):
        named = content.get(shape.model)
    return named if isinstance(named, str) else None


async def _pipe(
    request: web.Request, body: dict[str, Any], shape: Shape, name: str, pipelines: Pipelines
) -> dict[str, Any]:
    """Runs the steps before the answer, and returns the body of what the last model is asked. Raises RouterError."""
    begun, piped = await pipelines.begun(name, *shape.read(body))
    if begun.after is not None and (foreign := request.app[SERVICES].elsewhere(begun.model)) is not None:
        raise foreign.refusal
    request[PIPED] = piped
    return shape.write(body, begun.prompt, begun.parameters)
