"""JSON that others have written, bounded before it becomes Python's objects, of which each takes 50 bytes and more."""

from typing import Any

import orjson


def parse_object(content: bytes, max_values: int | None = None) -> dict[str, Any]:
    """Returns the object that a text is. Raises ValueError, whose sentence goes on behind the file's path: also for
    whole numbers of more than 64 bits, and for more than about `max_values` values."""
    if max_values is not None and sum(map(content.count, (b",", b"[", b"{"))) > max_values:
        raise ValueError(f"it has more than {max_values} values")
    try:
        found = orjson.loads(content)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found
