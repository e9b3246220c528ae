"""The key of an answer: a digest of all that it depends on."""

import hashlib
from array import array
from dataclasses import fields
from typing import Any

from penstock.router.engine.request import Request

_VERSION = b"penstock answer 1"
"""Another one for what is kept in another form."""
IGNORED = frozenset({"deadline", "grammar", "needs_bits", "priority", "tenant", "trace"})
"""The fields of a request that change nothing in its answer; a compiled grammar is known by its source."""


def key_of(request: Request, *context: bytes) -> bytes:
    """Returns the key of a request's answer; `context` is all that it depends on beside the request."""
    digest = hashlib.sha256(_VERSION)
    for part in (*context, *(_written(getattr(request, each.name)) for each in fields(request)
                             if each.name not in IGNORED)):
        digest.update(b"%d:" % len(part) + part)
    return digest.digest()


def _written(value: Any) -> bytes:
    match value:
        case tuple() if value and isinstance(value[0], int):
            return array("q", value).tobytes()
        case tuple():
            return repr([_of_side_input(each) for each in value]).encode()
        case frozenset():
            return repr(sorted(value)).encode()
    return repr(getattr(value, "identity", value)).encode(errors="backslashreplace")


def _of_side_input(value: Any) -> Any:
    return (value.name, value.identity) if hasattr(value, "identity") else value
