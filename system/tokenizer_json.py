"""The added tokens of a tokenizer.json, read without the megabytes of vocabulary behind them."""

import json
from pathlib import Path
from typing import Any

KEY = b'"added_tokens"'


def added_tokens(path: Path) -> list[dict[str, Any]]:
    """Returns the tokens that are found in texts as they stand: none of a file that is not there or lists none. Raises
    OSError or ValueError for one that can't be read."""
    content = path.read_bytes() if path.is_file() else b""
    at = content.find(b"[", content.find(KEY) + len(KEY)) if KEY in content else -1
    found: Any = json.JSONDecoder().raw_decode(content[at:].decode())[0] if at >= 0 else []
    if not isinstance(found, list) or not all(isinstance(token, dict) for token in found):
        raise ValueError(f"{path}: added_tokens is no list of objects")
    return found
