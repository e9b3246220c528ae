"""JSON lists of lists that may be too long to be in memory, sent part by part as the client reads them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.http.body import UNREAD_SECONDS
from penstock.router.api.http.parts import send_parts

_SHORT = 1 << 20
"""The most bytes of an answer that is sent at once."""


async def nested_response(
    request: web.Request, lists: Sequence[AsyncGenerator[list[Any]]], headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Answers with the JSON list of lists, of each of which some items come at a time. What is raised before a part of
    the answer is sent is the whole answer's failure."""
    async with aclosing(_joined(lists)) as parts:
        beginning = bytearray()
        async for part in parts:
            beginning += part
            if len(beginning) > _SHORT:
                break
        else:
            return web.Response(body=bytes(beginning), headers=headers, content_type="application/json")

        async def all_parts() -> AsyncGenerator[bytes]:
            yield bytes(beginning)
            async for part in parts:
                yield part

        response = web.StreamResponse(headers={**(headers or {}), "content-type": "application/json"})
        return await send_parts(request, response, all_parts(), UNREAD_SECONDS)


async def _joined(lists: Sequence[AsyncGenerator[list[Any]]]) -> AsyncGenerator[bytes]:
    for number, items in enumerate(lists):
        before = b",[" if number else b"[["
        async with aclosing(items):
            async for some in items:
                yield before + orjson.dumps(some)[1:-1]
                before = b","
        yield b"]" if before == b"," else before + b"]"
    yield b"]"
