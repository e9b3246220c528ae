"""The log of launcher and router, as text or as JSON with TGI's keys."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

from penstock.system.python_warnings import say_warnings

HTTP_CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2")
"""Loggers of the Hub's library, which write each address that is asked, with the signature that opens a gated model."""
FIELDS = "fields"
"""The attribute of a record, given as `extra`, that has named values: a mapping."""
_PLAIN = re.compile(r"[!#-<>-~]+")
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


def has_bars(json_output: bool) -> bool:
    """Tells whether progress is shown by bars: to people at a terminal, but not among lines of JSON."""
    return sys.stderr.isatty() and not json_output


class TextFormatter(logging.Formatter):
    """Formats lines as `2026-01-31T12:00:00.000000Z  INFO penstock.router.engine.engine: message`, with the fields of a
    line that has some behind it, as `name=value`. Numbers with a fraction are seconds."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)5s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = getattr(record, FIELDS, {})
        return " ".join([super().formatMessage(record), *(f"{name}={_text(value)}" for name, value in fields.items())])

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _timestamp(record)


class JsonFormatter(logging.Formatter):
    """Formats lines as objects of timestamp, level, message, target, the fields of a line that has some and, with the
    traceback if there is one, error."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"timestamp": _timestamp(record), "level": record.levelname,
                                "message": record.getMessage(), "target": record.name, **getattr(record, FIELDS, {})}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _text(value: object) -> str:
    """Writes the value of a field; a text that could be taken for more than one field, or for a line, is quoted."""
    match value:
        case float():
            return f"{value:.6f}s"
        case bool():
            return str(value).lower()
        case str() if not _PLAIN.fullmatch(value):
            return json.dumps(value)
    return str(value)


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
