"""Gives every request an id, records the work for it, counts it by route and status, and logs it."""

import asyncio

from aiohttp import hdrs, web

from penstock.router import request_id
from penstock.router.api.http.access import Handler
from penstock.router.errors import Dropped, Unhealthy
from penstock.router.generation import request_log
from penstock.router.generation.request_record import recording
from penstock.router.generation.service import service_of
from penstock.router.routing import route_of

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


_READING = (hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS)


@web.middleware
async def count_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts every answer when it has ended; a stream counts with the status that it began with, unless its client has
    left."""
    route, status = route_of(request), 500
    with recording(f"{request.method} {route}".strip()) as record:
        try:
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        except asyncio.CancelledError:
            status = Dropped.status
            raise
        finally:
            status = request_log.status_of(record, status)
            service_of(request).metrics.answered(route, status)
            if _is_told(request.method, status):
                request_log.write(record, status, path=None if route else request.rel_url.raw_path)


def _is_told(method: str, status: int) -> bool:
    """Tells whether a request has a line in the log: what only reads the server's state, as probes and Prometheus do
    every few seconds, has none, unless it is refused for another reason than that the server is not ready."""
    return method not in _READING or (status >= 400 and status != Unhealthy.status)
