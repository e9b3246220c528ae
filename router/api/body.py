"""JSON in and out. What can't be read is refused in plain text, in the words that TGI's clients know."""

from collections.abc import Mapping
from typing import TypeVar

import orjson
import pydantic
from aiohttp import web
from pydantic_core import ErrorDetails

from router.api.schemas import Body

AnyBody = TypeVar("AnyBody", bound=Body)

_MAX_SHOWN = 40
"""Characters of a refused string that the answer repeats."""
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
    """`content`: what orjson takes, dataclasses included."""
    return web.Response(
        body=orjson.dumps(content), status=status, headers=headers, content_type="application/json")


async def read_body(request: web.Request, schema: type[AnyBody]) -> AnyBody:
    """The body as `schema`. Raises 413, 415, 400 (no JSON) or 422 (another shape)."""
    kind, _, subtype = request.content_type.partition("/")
    if kind != "application" or (subtype != "json" and not subtype.endswith("+json")):
        raise web.HTTPUnsupportedMediaType(text="Expected request with `Content-Type: application/json`")
    data = await request.read()
    try:
        return schema.model_validate(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"Failed to parse the request body as JSON: {error}") from error
    except pydantic.ValidationError as error:
        what = _explain(error.errors(include_url=False)[0])
        raise web.HTTPUnprocessableEntity(
            text=f"Failed to deserialize the JSON body into the target type: {what}") from error


def _explain(error: ErrorDetails) -> str:
    """Where, what was found, what was expected."""
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
