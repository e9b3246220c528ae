"""Responses whose body is sent part by part, as the client reads it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import hdrs, web

log = logging.getLogger(__name__)


async def send_parts(
    request: web.Request, response: web.StreamResponse, parts: AsyncGenerator[bytes], unread_seconds: float
) -> web.StreamResponse:
    """Sends the response with the parts as its body; a HEAD is answered by the headers alone.

    Where the body can't be sent to its end, since a part fails, parts are missing, or the client leaves one unread for
    so many seconds, the connection is closed: the client must not take what comes next for the rest of the body.
    """
    await response.prepare(request)
    async with aclosing(parts):
        if request.method == hdrs.METH_HEAD:
            return response
        try:
            num_bytes = 0
            async for part in parts:
                async with asyncio.timeout(unread_seconds):
                    await response.write(part)
                num_bytes += len(part)
            if response.content_length not in (None, num_bytes):
                raise EOFError(f"{num_bytes} of its {response.content_length} bytes are there")
            await response.write_eof()
        except Exception as error:  # which a status can't tell any more
            log.warning("an answer breaks off, %s", str(error) or type(error).__name__)
            if request.transport is not None:
                request.transport.abort()
    return response
