"""The name of a route, as figures and spans bear it."""

from aiohttp import web


def route_of(request: web.Request) -> str:
    """The path as it was defined; empty if there is none such."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""
