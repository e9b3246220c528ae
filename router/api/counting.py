"""Counts what is answered, by route and status."""

import asyncio

from aiohttp import web

from router.api.access import Handler
from router.api.service import SERVICE
from router.errors import Dropped


@web.middleware
async def count_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Around all that answers. A stream counts when it ends, with the status that it began with."""
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


def route_of(request: web.Request) -> str:
    """The path as it was defined; empty if there is none such."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""
