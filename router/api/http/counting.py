"""Counts what is answered, by route and status."""

import asyncio

from aiohttp import web

from penstock.router.api.http.access import Handler
from penstock.router.errors import Dropped
from penstock.router.generation.service import SERVICE
from penstock.router.routing import route_of


@web.middleware
async def count_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts every answer when it has ended; a stream counts with the status that it began with."""
    status = 500
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
        request.app[SERVICE].metrics.answered(route_of(request), status)
