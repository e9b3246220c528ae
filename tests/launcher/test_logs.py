"""The lines of a log, as text and as JSON."""

import json
import logging
import sys

import pytest

from penstock.router import logs
from penstock.router.logs import JsonFormatter, TextFormatter
from penstock.shard import log as shard_log


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


def test_json_of_a_name_that_is_not_utf8():
    line = JsonFormatter().format(record(msg="no %s", args=("model-\udcff",)))
    assert json.loads(line)["message"] == "no model-\udcff"


def test_text_holds_the_traceback():
    try:
        raise ValueError("no such")
    except ValueError:
        first, *_, last = TextFormatter().format(record(exc_info=sys.exc_info())).splitlines()
    assert (first[-9:], last) == (" served 3", "ValueError: no such")


def test_fields():
    assert json.loads(JsonFormatter().format(record(fields={"status": 200, "total_time": 0.5}))) == {
        "timestamp": "2027-01-15T08:00:00.250000Z", "level": "INFO", "message": "served 3",
        "target": "penstock.router.app", "status": 200, "total_time": 0.5}


@pytest.mark.parametrize("configure", [
    lambda level: logs.configure(level, json_output=False),
    lambda level: shard_log.start(json_output=False, rank=0, level=level)], ids=["router", "shard"])
def test_libraries_have_no_say_in_the_details(configure, monkeypatch):
    """Of gRPC's and asyncio's loops, HTTP's frames and all others; neither is a quiet log made louder by them."""
    monkeypatch.setattr(logging.root, "handlers", [])
    own, libraries = logging.getLogger("penstock.router.engine"), [
        logging.getLogger(name) for name in ("asyncio", "grpc._cython.cygrpc", "hpack.hpack", "httpx", "aiohttp", "h2")]
    before = logging.root.level, logging.getLogger("penstock").level
    try:
        for level, own_level, others in (("DEBUG", 10, 20), ("INFO", 20, 20), ("ERROR", 40, 40)):
            configure(level)
            assert own.getEffectiveLevel() == own_level
            assert all(each.getEffectiveLevel() >= others for each in libraries)
    finally:
        logging.root.setLevel(before[0])
        logging.getLogger("penstock").setLevel(before[1])


def test_a_shard_s_line_names_its_model_where_there_are_several() -> None:
    line = shard_log.TextFormatter(1).format(record())
    assert shard_log.TextFormatter(1, "chat").format(record()).partition(" ")[2] == line.partition(" ")[2].replace(
        "shard-1:", "shard-1 of chat:")
    assert ',"rank":1,"model":"chat"' in shard_log.JsonFormatter(1, "chat").format(record())
    assert "model" not in shard_log.JsonFormatter(1).format(record())


@pytest.mark.parametrize("changes", [{}, {"msg": "no %s", "args": ("model-\udcff",)}], ids=["a line", "not UTF-8"])
def test_every_process_writes_json_without_spaces(changes):
    """So that one search finds the lines of a level, whoever wrote them."""
    for formatter in (JsonFormatter(), shard_log.JsonFormatter(rank=0)):
        assert ',"level":"INFO","message":"' in formatter.format(record(**changes))
