"""The names of routes in metrics and spans, and the texts of headers."""

from aiohttp import web


def route_of(request: web.Request) -> str:
    """Returns the path of a request's route as it was defined, without a slash at its end; empty if there is no such
    route."""
    resource = request.match_info.route.resource
    return resource.canonical.rstrip("/") or "/" if resource else ""


def header_text(request: web.Request, name: str) -> str:
    """Returns the value of a header that is there, without blanks around it. Bytes that are no UTF-8 are written as
    escapes: no answer, log or digest can have them as they are."""
    return request.headers[name].strip().encode(errors="backslashreplace").decode()
