"""References within a JSON schema: JSON pointers, as URIs have them. Pure."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_INDEX = re.compile("0|[1-9][0-9]{0,8}")


def resolved(reference: object, root: Mapping[str, Any]) -> object:
    """Returns the part of a schema that a reference points at; None if there is none."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return None
    found: object = root
    for step in reference.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(key)] if _INDEX.fullmatch(key) and int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found
