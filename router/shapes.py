"""The base of all that clients send as JSON, and the sentences for what has another shape."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import ErrorDetails

_MAX_SHOWN = 40
"""How many characters of a refused string the answer repeats."""
_NOTHING = object()
EXPECTED = {
    "model_type": "an object",
    "dict_type": "an object",
    "string_type": "a string",
    "float_type": "a number",
    "int_type": "an integer",
    "bool_type": "a boolean",
    "list_type": "a list",
}
"""By pydantic's word for an error, the type that a value must have."""


class Body(BaseModel):
    """The base of all bodies: types are exact, except that an integer is a number, and unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def explain(error: ErrorDetails, content: Any) -> str:
    """Returns a sentence that says where in `content` what was found, and what was expected."""
    if error["type"] == "missing":
        field = error["loc"][-1]
        return _at(path_of({**error, "loc": error["loc"][:-1]}, content)) + f"missing field `{field}`"
    where = _at(path_of(error, content))
    if expected := EXPECTED.get(error["type"]):
        return f"{where}invalid type: {shown(error['input'])}, expected {expected}"
    return f"{where}invalid value: {shown(error['input'])}: {error['msg'].removeprefix('Value error, ')}"


def _at(path: str | None) -> str:
    return f"{path}: " if path else ""


def path_of(error: ErrorDetails, content: Any) -> str | None:
    """Returns where in `content` the error is, such as `messages[0].content`; None if that is all of it.

    A location also names the types of unions that were tried, which are no part of the content.
    """
    path, location = "", error["loc"]
    for part in location:
        inner = _inside(content, part)
        if inner is not _NOTHING or (error["type"] == "missing" and part is location[-1]):
            path += f"[{part}]" if isinstance(part, int) else f".{part}"
            content = inner
    return path.removeprefix(".") or None


def _inside(content: Any, part: int | str) -> Any:
    """Returns the part of an object or a list; `_NOTHING` if it has none of this name. Numbers name fields, too."""
    if isinstance(content, dict):
        return content.get(part, content.get(str(part), _NOTHING))
    if isinstance(content, list) and isinstance(part, int) and part < len(content):
        return content[part]
    return _NOTHING


def shown(value: object) -> str:
    """Returns a value of JSON as a sentence may have it."""
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
