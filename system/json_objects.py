"""JSON that others have written, bounded before it becomes Python's objects, of which each takes 50 bytes and more."""

import json
from typing import Any

import orjson

MAX_PARTS = 1 << 16
"""Texts, names of fields, lists and objects of a body. To make Python's objects of a million takes a second, for which
everybody waits."""


def parse_object(content: bytes, max_values: int | None = None) -> dict[str, Any]:
    """Returns the object that a text is. Raises ValueError, whose sentence goes on behind the file's path: also for
    whole numbers of more than 64 bits, and for more than about `max_values` values."""
    if max_values is not None and _num_values(content) > max_values:
        raise ValueError(f"it has more than {max_values} values")
    try:
        found = orjson.loads(content)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def as_line(value: Any) -> bytes:
    """Returns the value as a line of JSON. orjson writes it twenty times as fast, but refuses whole numbers of more
    than 64 bits, names of fields that are no texts, and halves of UTF-16's pairs. Raises TypeError, ValueError and
    RecursionError."""
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(value).encode() + b"\n"


def check_amount(content: bytes | bytearray, max_values: int) -> None:
    """Raises ValueError, which says what it has too many of, for JSON of more than MAX_PARTS texts, names of fields,
    lists and objects, or of more than about `max_values` values in all.

    The content of texts does not count. It takes some five milliseconds for each megabyte."""
    if _num_values(content) + content.count(b'"') <= min(MAX_PARTS, max_values):
        return
    plain = content.replace(rb"\\", b"").replace(rb'\"', b"")
    num_texts = plain.count(b'"') // 2
    if num_texts <= MAX_PARTS:
        plain = b"".join(plain.split(b'"')[::2])
    if num_texts > MAX_PARTS or num_texts + plain.count(b"[") + plain.count(b"{") > MAX_PARTS:
        raise ValueError(f"more than {MAX_PARTS} texts, names of fields, lists and objects")
    if _num_values(plain) > max_values:
        raise ValueError(f"more than {max_values} values")


def _num_values(content: bytes | bytearray) -> int:
    """Returns about how many values JSON has, or more than that if its texts have such signs."""
    return content.count(b",") + content.count(b"[") + content.count(b"{")
