"""Gives every request an id, records the work for it, counts it by route and status, and logs it."""

import asyncio

from aiohttp import hdrs, web

from penstock.router import request_id
from penstock.router.api.http.access import Handler
from penstock.router.errors import Dropped, Unhealthy
from penstock.router.generation import request_log
from penstock.router.generation.piped import PIPED
from penstock.router.generation.request_record import RequestRecord, recording
from penstock.router.generation.services import COUNTS, MODEL, SERVICES, TAKEN, first_of
from penstock.router.routing import route_of

REQUEST_ID = web.RequestKey("request_id", str)
RECORD = web.RequestKey("record", RequestRecord)
CACHE = "penstock-cache"
"""The header that tells whether an answer was kept from before, and for how many seconds."""


@web.middleware
async def name_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Takes the client's id, or makes one; it comes before all else, so that nothing runs for a request without one."""
    with request_id.naming(request.headers.get(request_id.HEADER)) as name:
        request[REQUEST_ID] = name
        return await handler(request)


async def tell_request(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the headers to an answer that is about to be sent: its request's id, which those have not that aiohttp
    refuses by itself, and whether it was kept from before."""
    if REQUEST_ID in request:
        response.headers[request_id.HEADER] = request[REQUEST_ID]
    if RECORD in request and request[RECORD].cache:
        response.headers[CACHE] = request[RECORD].cache


async def tell_model(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the header that names the model that answers, or the pipeline, which is to be asked again."""
    if PIPED in request:
        response.headers[MODEL] = request[PIPED].pipeline
    elif TAKEN in request:
        response.headers[MODEL] = request[TAKEN][-1].info.model_id


_READING = (hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS)


@web.middleware
async def count_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts every answer when it has ended; a stream counts with the status that it began with, unless its client has
    left."""
    route, status = route_of(request), 500
    with recording(f"{request.method} {route}".strip()) as record:
        request[RECORD] = record
        journal = first_of(request).around.journal
        record.keeps_body = journal is not None and journal.keeps_texts
        record.cache_control = request.headers.get(hdrs.CACHE_CONTROL, "")
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
            taken = request.get(TAKEN, ())
            for service in taken:
                request.app[SERVICES].give_back(service)
            counts = request.get(COUNTS) or (taken[-1] if taken else first_of(request)).metrics
            counts.answered(route, status)
            if _is_told(request.method, status):
                request_log.write(record, status, None if route else request.rel_url.raw_path, journal)


def _is_told(method: str, status: int) -> bool:
    """Tells whether a request has a line in the log: what only reads the server's state, as probes and Prometheus do
    every few seconds, has none, unless it is refused for another reason than that the server is not ready."""
    return method not in _READING or (status >= 400 and status != Unhealthy.status)
