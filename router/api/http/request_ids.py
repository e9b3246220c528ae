"""Gives every request an id, which each answer to it has in the header `x-request-id`, streams and errors included."""

from aiohttp import web

from penstock.router import request_id
from penstock.router.api.http.access import Handler

REQUEST_ID = web.RequestKey("request_id", str)


@web.middleware
async def name_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Takes the client's id, or makes one; it comes before all else, so that nothing runs for a request without one."""
    with request_id.naming(request.headers.get(request_id.HEADER)) as name:
        request[REQUEST_ID] = name
        return await handler(request)


async def tell_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the header to an answer that is about to be sent. Requests that aiohttp refuses by itself have no id."""
    if REQUEST_ID in request:
        response.headers[request_id.HEADER] = request[REQUEST_ID]
