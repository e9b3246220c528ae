"""The lines of a log, as text and as JSON."""

import json
import logging
import sys

from penstock.router.logs import JsonFormatter, TextFormatter


def record(**changes) -> logging.LogRecord:
    line = logging.makeLogRecord({"name": "penstock.router.app", "levelname": "INFO", "msg": "served %d", "args": (3,)})
    line.created = 1_800_000_000.25
    line.__dict__.update(changes)
    return line


def test_text():
    assert TextFormatter().format(record()) == "2027-01-15T08:00:00.250000Z  INFO penstock.router.app: served 3"


def test_json():
    assert json.loads(JsonFormatter().format(record())) == {
        "timestamp": "2027-01-15T08:00:00.250000Z", "level": "INFO", "message": "served 3",
        "target": "penstock.router.app"}


def test_json_holds_the_traceback():
    try:
        raise ValueError("no such é")
    except ValueError:
        line = JsonFormatter().format(record(exc_info=sys.exc_info()))
    assert "\n" not in line
    assert json.loads(line)["error"].endswith("ValueError: no such é")


def test_fields():
    assert json.loads(JsonFormatter().format(record(fields={"status": 200, "total_time": 0.5}))) == {
        "timestamp": "2027-01-15T08:00:00.250000Z", "level": "INFO", "message": "served 3",
        "target": "penstock.router.app", "status": 200, "total_time": 0.5}
