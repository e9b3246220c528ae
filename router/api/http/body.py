"""JSON in and out."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import orjson
import pydantic
from aiohttp import hdrs, web
from aiohttp.http_exceptions import PayloadEncodingError
from pydantic_core import ErrorDetails

from penstock.router.api.http.body_room import ROOM, SMALL
from penstock.router.api.http.parts import send_parts
from penstock.router.errors import TooLarge, TooSlow, Unreadable, WrongContentType, WrongShape
from penstock.router.generation import request_record
from penstock.router.generation.services import first_of
from penstock.router.limits import Limits
from penstock.router.shapes import EXPECTED, Body, explain, path_of, shown
from penstock.system.json_objects import check_amount

AnyBody = TypeVar("AnyBody", bound=Body)

READ_AHEAD = web.RequestKey("read_ahead", object)
"""The parsed body, where it was read to find out who answers the request."""
MAX_VALUES = 300_000
"""Of a body, beside token ids of prompts: a bias for each token of the largest vocabularies, above all."""
UNREAD_SECONDS = 10.0
"""The most seconds for which a client may leave a part of a long answer unread, since others wait for their turn."""
PAUSE_SECONDS = 5.0
"""The most seconds for which a client may send nothing amid a large body, since others wait for its room."""
_BOUNDS = {
    **dict.fromkeys(("greater_than", "greater_than_equal"), "below_min_value"),
    **dict.fromkeys(("less_than", "less_than_equal"), "above_max_value"),
}
_CODES = {
    "too_short": "empty_array", "too_long": "array_above_max_length",
    "string_too_short": "empty_string", "string_too_long": "string_above_max_length",
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

        async def joined() -> AsyncGenerator[bytes]:
            yield before + first[:-1]
            yield b"," + second[1:-1]
            async for part in parts:
                yield b"," + part[1:-1]
            yield b"]" + after

        return await send_parts(request, web.StreamResponse(headers={"content-type": "application/json"}), joined(),
                                UNREAD_SECONDS)


async def read_body(request: web.Request, schema: type[AnyBody]) -> AnyBody:
    """Returns the body as `schema`. Raises Unreadable."""
    return to_body(await read_json(request), schema)


async def read_json(request: web.Request) -> Any:
    """Returns the parsed body, or what has been read ahead of it. Raises Unreadable."""
    if READ_AHEAD in request:
        return request.pop(READ_AHEAD)
    kind, _, subtype = request.content_type.partition("/")
    if kind != "application" or (subtype != "json" and not subtype.endswith("+json")):
        raise WrongContentType
    check_encoding(request)
    content = await read_bytes(request)
    if (record := request_record.current()).keeps_body:
        record.body = bytes(content)
    return parse_json(content, first_of(request).limits)


def check_encoding(request: web.Request) -> None:
    """Raises WrongContentType for a body that is compressed."""
    encoding = ", ".join(request.headers.getall(hdrs.CONTENT_ENCODING, ())).strip()
    if encoding.lower() not in ("", "identity"):
        raise WrongContentType(f"Expected request without `Content-Encoding`. Given: {shown(ascii(encoding)[1:-1])}")


def parse_json(content: bytes | bytearray, limits: Limits) -> Any:
    """Parses a request's body. Raises Unreadable."""
    try:
        check_amount(content, MAX_VALUES + limits.max_client_batch_size * limits.max_input_tokens)
    except ValueError as error:
        raise TooLarge(f"it has {error}") from error
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"Failed to parse the request body as JSON: {error}") from error


async def read_bytes(request: web.Request) -> bytearray:
    """Returns the body's bytes, at most `payload_limit`; a body that says that it is longer is not read at all. Raises
    Unreadable.

    Once it has turned out to be large, the rest of it is read when there is room, until the request is answered.
    """
    limits = first_of(request).limits
    most, length, content = limits.payload_limit, request.content_length, bytearray()
    if length is not None and length > most:
        raise TooLarge
    try:
        if not await _read_up_to(min(SMALL, most), request, content, limits) and len(content) <= most:
            await request.app[ROOM].enter(request, most if length is None else length)
            await _read_up_to(most, request, content, limits, PAUSE_SECONDS)
    except TimeoutError as error:
        raise TooSlow from error
    except PayloadEncodingError as error:
        raise Unreadable("Failed to buffer the request body: its encoding is broken") from error
    if len(content) > most:
        raise TooLarge
    return content


async def _read_up_to(
    most: int, request: web.Request, content: bytearray, limits: Limits, pause: float | None = None
) -> bool:
    """Reads until the body ends, or has become longer than `most` bytes; returns whether it has ended. Raises
    TimeoutError, also if nothing comes for `pause` seconds."""
    async with asyncio.timeout(limits.body_timeout):
        while len(content) <= most:
            async with asyncio.timeout(pause):
                part = await request.content.readany()
            if not part:
                return True
            content += part
    return False


def to_body(content: Any, schema: type[AnyBody]) -> AnyBody:
    """Returns parsed JSON as `schema`; raises WrongShape if it has another one."""
    try:
        return schema.model_validate(content)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise WrongShape(explain(first, content), _code(first), path_of(first, content)) from error


def _code(error: ErrorDetails) -> str:
    """Returns OpenAI's word for the error."""
    kind = error["type"]
    if kind == "missing":
        return "missing_required_parameter"
    if kind in EXPECTED:
        return "invalid_type"
    if (bound := _BOUNDS.get(kind)) is not None:
        return f"{'integer' if isinstance(error['input'], int) else 'decimal'}_{bound}"
    return _CODES.get(kind, "invalid_value")
