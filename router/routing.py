"""The names of routes in metrics and spans."""

from aiohttp import web


def route_of(request: web.Request) -> str:
    """Returns the path of a request's route as it was defined, without a slash at its end; empty if there is no such
    route."""
    resource = request.match_info.route.resource
    return resource.canonical.rstrip("/") or "/" if resource else ""
