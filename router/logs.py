"""The log of launcher and router, as text or as JSON with TGI's keys."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

from penstock.system.python_warnings import say_warnings

HTTP_CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2")
"""Loggers of the Hub's library, which write each address that is asked, with the signature that opens a gated model."""
FIELDS = "fields"
"""The attribute of a record that has named values: a mapping."""
_quoted = json.JSONEncoder().encode
_is_plain = re.compile(r"[!#-<>-~]+").fullmatch
"""Texts without spaces, quotes and `=`."""
REQUESTS = "penstock.requests"
"""The logger of the lines that tell of one request each."""


def configure(level: str, json_output: bool, has_requests: bool = True) -> None:
    """Sends the log of this process to stderr, from `level` upwards; with `has_requests` it tells of each request.
    Libraries tell nothing below INFO: their details, such as each turn of gRPC's loop, are of no use here."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if json_output else TextFormatter())
    logging.basicConfig(level=max(logging.INFO, logging.getLevelNamesMapping()[level]), handlers=[handler], force=True)
    logging.getLogger("penstock").setLevel(level)
    for name in HTTP_CLIENTS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    if not has_requests:
        logging.getLogger(REQUESTS).setLevel(logging.CRITICAL)
    say_warnings()


def follow(name: str, level: str) -> None:
    """Has a logger tell from `level` upwards, in a program whose log is not ours: lines go where the program sends
    them, or to stderr if it has not said so yet."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(TextFormatter())
        logger.addHandler(handler)


def has_bars(json_output: bool) -> bool:
    """Tells whether progress is shown by bars: to people at a terminal, but not among lines of JSON."""
    return sys.stderr.isatty() and not json_output


class TextFormatter(logging.Formatter):
    """Formats lines as `2026-01-31T12:00:00.000000Z  INFO penstock.router.engine.engine: message`, with the fields of a
    line that has some behind it, as `name=value`. Numbers with a fraction are seconds."""

    def __init__(self) -> None:
        super().__init__("%(message)s")  # which has the base class leave the time to this one

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record)} {record.levelname:>5} {record.name}: {record.message}"
        fields = record.__dict__.get(FIELDS)
        return f"{line} {' '.join([f'{name}={_text(value)}' for name, value in fields.items()])}" if fields else line


class JsonFormatter(logging.Formatter):
    """Formats lines as objects of timestamp, level, message, target, the fields of a line that has some and, with the
    traceback if there is one, error."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"timestamp": _timestamp(record), "level": record.levelname,
                                "message": record.getMessage(), "target": record.name, **getattr(record, FIELDS, {})}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line).decode()
        except TypeError:  # of half a surrogate pair, as in the name of a file that is not UTF-8
            return json.dumps(line, separators=(",", ":"))


def _text(value: object) -> str:
    """Writes the value of a field; a text that could be taken for more than one field, or for a line, is quoted."""
    if isinstance(value, float):
        return f"{value:.6f}s"
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _timestamp(record: logging.LogRecord) -> str:
    return f"{datetime.fromtimestamp(record.created, UTC).isoformat(timespec='microseconds')[:-len('+00:00')]}Z"
