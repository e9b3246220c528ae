"""JSON in and out. What can't be read is refused in plain text, in the words that TGI's clients know."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import orjson
import pydantic
from aiohttp import hdrs, web
from aiohttp.http_exceptions import PayloadEncodingError
from pydantic_core import ErrorDetails

from penstock.router.api.http.body_room import ROOM, SMALL
from penstock.router.engine.limits import Limits
from penstock.router.generation.parameters import Body
from penstock.router.generation.service import SERVICE

AnyBody = TypeVar("AnyBody", bound=Body)

log = logging.getLogger(__name__)

UNREAD_SECONDS = 10.0
"""The most seconds for which a client may leave a part of a long answer unread, since others wait for their turn."""
_MAX_SHOWN = 40
"""How many characters of a refused string the answer repeats."""
_EXPECTED = {
    "model_type": "an object",
    "dict_type": "an object",
    "string_type": "a string",
    "float_type": "a number",
    "int_type": "an integer",
    "bool_type": "a boolean",
    "list_type": "a list",
}


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Returns a response with `content` as JSON, which is anything that orjson takes, dataclasses included."""
    return web.Response(
        body=orjson.dumps(content), status=status, headers=headers, content_type="application/json")


async def list_response(
    request: web.Request, parts: AsyncGenerator[bytes], before: bytes = b"", after: bytes = b""
) -> web.StreamResponse:
    """Answers with the JSON list that JSON lists make together, between other JSON. It may have a million items, so
    that it is sent part by part, as the client reads it."""
    async with aclosing(parts):
        first, second = await anext(parts, b"[]"), await anext(parts, None)
        if second is None:
            return web.Response(body=before + first + after, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        try:
            await _write(response, before + first[:-1])
            await _write(response, b"," + second[1:-1])
            async for part in parts:
                await _write(response, b"," + part[1:-1])
            await _write(response, b"]" + after)
            await response.write_eof()
        except Exception as error:  # which a status can't tell any more
            log.warning("an answer breaks off, %s", str(error) or type(error).__name__)
            if request.transport is not None:
                request.transport.abort()
    return response


async def _write(response: web.StreamResponse, part: bytes) -> None:
    """Sends a part. Raises TimeoutError if the client takes too long to read what came before."""
    async with asyncio.timeout(UNREAD_SECONDS):
        await response.write(part)


async def read_body(request: web.Request, schema: type[AnyBody]) -> AnyBody:
    """Returns the body as `schema`. Raises 413, 415, 408 (too slow), 400 (not JSON) or 422 (another shape)."""
    return to_body(await read_json(request), schema)


async def read_json(request: web.Request) -> Any:
    """Returns the parsed body. Raises 413, 415, 408 (too slow) or 400 (not JSON)."""
    kind, _, subtype = request.content_type.partition("/")
    if kind != "application" or (subtype != "json" and not subtype.endswith("+json")):
        raise web.HTTPUnsupportedMediaType(text="Expected request with `Content-Type: application/json`")
    encoding = ", ".join(request.headers.getall(hdrs.CONTENT_ENCODING, ())).strip()
    if encoding.lower() not in ("", "identity"):
        raise web.HTTPUnsupportedMediaType(
            text=f"Expected request without `Content-Encoding`. Given: {_show(ascii(encoding)[1:-1])}")
    try:
        return orjson.loads(await _read(request))
    except orjson.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"Failed to parse the request body as JSON: {error}") from error


async def _read(request: web.Request) -> bytearray:
    """Returns the body's bytes, at most `payload_limit`; a body that says that it is longer is not read at all.

    Once it has turned out to be large, the rest of it is read when there is room, until the request is answered.
    """
    limits = request.app[SERVICE].limits
    length = request.content_length
    if length is not None and length > limits.payload_limit:
        raise web.HTTPRequestEntityTooLarge(limits.payload_limit, length)
    content = bytearray()
    try:
        is_whole = await _read_up_to(min(SMALL, limits.payload_limit), request, content, limits)
        if is_whole or len(content) > limits.payload_limit:
            return _checked(content, limits)
        await request.app[ROOM].enter(request, limits.payload_limit if length is None else length)
        await _read_up_to(limits.payload_limit, request, content, limits)
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text="Failed to buffer the request body: it did not come in time") from error
    except PayloadEncodingError as error:
        raise web.HTTPBadRequest(text="Failed to buffer the request body: its encoding is broken") from error
    return _checked(content, limits)


def _checked(content: bytearray, limits: Limits) -> bytearray:
    if len(content) > limits.payload_limit:
        raise web.HTTPRequestEntityTooLarge(limits.payload_limit, len(content))
    return content


async def _read_up_to(most: int, request: web.Request, content: bytearray, limits: Limits) -> bool:
    """Reads until the body ends, or has become longer than `most` bytes; returns whether it has ended."""
    async with asyncio.timeout(limits.body_timeout):
        while len(content) <= most:
            if not (part := await request.content.readany()):
                return True
            content += part
    return False


def to_body(content: Any, schema: type[AnyBody]) -> AnyBody:
    """Returns parsed JSON as `schema`; raises 422 if it has another shape."""
    try:
        return schema.model_validate(content)
    except pydantic.ValidationError as error:
        what = explain(error.errors(include_url=False)[0])
        raise web.HTTPUnprocessableEntity(
            text=f"Failed to deserialize the JSON body into the target type: {what}") from error


def explain(error: ErrorDetails) -> str:
    """Returns a sentence that says where in the body what was found, and what was expected."""
    location = error["loc"]
    if error["type"] == "missing":
        return _path(location[:-1]) + f"missing field `{location[-1]}`"
    if expected := _EXPECTED.get(error["type"]):
        return _path(location) + f"invalid type: {_show(error['input'])}, expected {expected}"
    return _path(location) + f"invalid value: {_show(error['input'])}: {error['msg']}"


def _path(location: tuple[int | str, ...]) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location if part != "[key]")
    return f"{parts.removeprefix('.')}: " if parts else ""


def _show(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f'string "{value[:_MAX_SHOWN]}{"…" if len(value) > _MAX_SHOWN else ""}"'
        case list():
            return "a list"
        case _:
            return "an object"
