"""Writes the shard's log on stderr, in the router's two forms: lines for people, or one JSON object a line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from penstock.system.python_warnings import say_warnings


class TextFormatter(logging.Formatter):
    """Writes lines such as `2026-01-31T12:00:00.000000Z  INFO shard-0: message`, with the model's name behind the rank
    if it has one."""

    def __init__(self, rank: int, model: str | None = None) -> None:
        super().__init__("%(message)s")
        self._name = f"shard-{rank}" if model is None else f"shard-{rank} of {model}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        return f"{_timestamp(record)} {record.levelname:>5} {self._name}: {record.message}"


class JsonFormatter(logging.Formatter):
    """Writes objects of timestamp, level, message, target and rank, model if it has a name, and error with the
    traceback if there is one."""

    def __init__(self, rank: int, model: str | None = None) -> None:
        super().__init__()
        self._fields = {"rank": rank} if model is None else {"rank": rank, "model": model}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"timestamp": _timestamp(record), "level": record.levelname,
                                "message": record.getMessage(), "target": record.name, **self._fields}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def start(json_output: bool, rank: int, level: str = "INFO", model: str | None = None) -> None:
    """Sends the log of this process to stderr, from `level` upwards, of libraries nothing below INFO."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(rank, model) if json_output else TextFormatter(rank, model))
    logging.basicConfig(level=max(logging.INFO, logging.getLevelNamesMapping()[level]), handlers=[handler], force=True)
    logging.getLogger("penstock").setLevel(level)
    say_warnings()


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
