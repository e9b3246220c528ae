"""The log's line of each request."""

import asyncio
import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.router import logs
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.keys import Keys
from penstock.router.logs import JsonFormatter, TextFormatter
from tests.eventually import until
from tests.fakes import LIMITS
from tests.pooling_fleet import EMBEDDER, PoolingFleet
from tests.router.adapters.folders import write_adapter
from tests.router.api.conftest import Server, Start
from tests.router.api.test_metrics import read

TIMES = {"total_time", "validation_time", "queue_time", "inference_time", "time_per_token", "time_to_first_token",
         "step_time"}
NOT_COMPARED = {"request_id", "waits", *TIMES}
SECRET = "the-secret-of-the-prompt"


class Lines:
    """The lines that requests have written."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def records(self) -> list[logging.LogRecord]:
        return [record for record in self._caplog.records if record.name == logs.REQUESTS]

    @property
    def all(self) -> list[dict[str, Any]]:
        return [record.__dict__["fields"] for record in self.records]

    def one(self) -> dict[str, Any]:
        """The fields of the only line but for the id, which each has, and the times, which are sane."""
        [fields] = self.all
        assert all(0 <= value < 5 for name, value in fields.items() if name in TIMES)
        assert fields["total_time"] > 0
        assert re.fullmatch(r"req_[0-9a-f]{32}", fields["request_id"])
        return {name: value for name, value in fields.items() if name not in NOT_COMPARED}

    async def until(self, number: int) -> None:
        await until(lambda: len(self.records) >= number)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, logs.REQUESTS)
    return Lines(caplog)


async def test_a_request(start: Start, lines: Lines) -> None:
    server = await start(answer=" b")
    for _ in range(2):
        await server.generate(" a" * 40, max_new_tokens=3)
    told = lines.all[1]
    assert set(told) > TIMES
    assert told["queue_time"] + told["inference_time"] + told["validation_time"] <= told["total_time"]
    assert sum(float(wait.partition(":")[2]) for wait in told["waits"].split(",")) <= told["queue_time"]
    assert {name: value for name, value in told.items() if name not in NOT_COMPARED} == {
        "route": "POST /generate", "status": 200, "stream": False, "answers": 1,
        "input_tokens": 40, "cached_tokens": 32, "output_tokens": 3, "finish_reason": "length"}
    assert lines.records[1].getMessage() == "POST /generate 200"


async def test_the_id_is_the_one_that_the_client_has(server: Server, lines: Lines) -> None:
    async with server.client.post("/generate", json={"inputs": ""}, headers={"x-request-id": "mine-1"}) as response:
        assert response.headers["x-request-id"] == "mine-1"
    async with server.client.post("/generate", json={"inputs": ""}) as response:
        assert [each["request_id"] for each in lines.all] == ["mine-1", response.headers["x-request-id"]]


async def test_a_stream(server: Server, lines: Lines) -> None:
    response = await server.post("/generate_stream", {"inputs": "a", "parameters": {"max_new_tokens": 2}})
    await response.read()
    assert lines.one() == {
        "route": "POST /generate_stream", "status": 200, "stream": True, "answers": 1,
        "input_tokens": 1, "cached_tokens": 0, "output_tokens": 2, "finish_reason": "length"}


async def test_several_answers(start: Start, lines: Lines) -> None:
    server = await start(answer=" b")
    await server.post("/v1/completions", {"prompt": [" a" * 20, " c" * 30], "n": 2, "max_tokens": 3, "seed": 1})
    told = lines.one()
    assert (told["answers"], told["input_tokens"], told["output_tokens"]) == (4, 50, 12)
    assert told["finish_reason"] == "length,length,length,length"


@pytest.mark.parametrize(("path", "body", "status", "error"), [
    ("/generate", {"inputs": ""}, 422, "validation"),
    ("/generate_stream", {"inputs": ""}, 200, "validation"),
    ("/generate", {"inputs": 3}, 422, "unreadable"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, 400, "template_error"),
    ("/tokenize", {"inputs": "a"}, 200, None)])
async def test_what_generates_nothing(
    server: Server, lines: Lines, path: str, body: object, status: int, error: str | None
) -> None:
    await (await server.post(path, body)).read()
    told = lines.one()
    assert (told["route"], told["status"], told.get("error")) == (f"POST {path}", status, error)
    assert "finish_reason" not in told


async def test_a_request_that_is_refused_since_there_are_others(start: Start, lines: Lines) -> None:
    server = await start(replace(LIMITS, max_concurrent_requests=1))
    server.fleet.may_answer.clear()
    waiting = asyncio.create_task(server.generate("a", max_new_tokens=1))
    await until(lambda: bool(server.fleet.plans))
    await server.post("/generate", {"inputs": "a"})
    assert lines.one() == {"route": "POST /generate", "status": 429, "error": "overloaded", "stream": False,
                           "answers": 1, "output_tokens": 0}
    server.fleet.may_answer.set()
    await waiting


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_a_client_that_leaves(server: Server, lines: Lines, path: str) -> None:
    server.fleet.may_answer.clear()
    asked = asyncio.create_task(read(server, path))
    await until(lambda: bool(server.fleet.plans))
    asked.cancel()
    await lines.until(1)
    told = lines.one()
    assert (told["status"], told["error"], told["input_tokens"], told["output_tokens"]) == (499, "dropped", 1, 0)
    assert "finish_reason" not in told
    server.fleet.may_answer.set()
    await server.until_idle()
    assert server.series()[f'penstock_requests_total{{route="{path}",status="499"}}'] == 1


async def test_keys_have_names(start: Start, lines: Lines, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# for the tests\none\n# name: alice\ntwo\n\n# name: bob\n\nthree\n")
    server = await start(access=Access(Keys(["given"], file)))
    for key in ("given", "one", "two", "three", "four"):
        await server.client.post("/tokenize", json={"inputs": "a"}, headers={"authorization": f"Bearer {key}"})
    assert [(each["status"], each.get("key")) for each in lines.all] == [
        (200, "key-1"), (200, "file-1"), (200, "alice"), (200, "file-3"), (401, None)]


def test_names_in_a_file_take_no_key_away(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# name: key-1\none\n# name: key-1\ntwo\ngiven\n")
    keys = Keys(["given", "other"], file)
    assert [keys.name_of(key) for key in ("given", "other", "one", "two", "three")] == [
        "key-1", "key-2", "key-1", "key-1", None]


async def test_the_adapter_is_named(start: Start, lines: Lines, tmp_path: Path) -> None:
    server = await start(adapters=Registry([AdapterSource("mine", write_adapter(tmp_path), "mine")], max_bytes=10_000))
    await server.generate(adapter_id="mine", max_new_tokens=2)
    await lines.until(1)
    assert lines.one()["adapter"] == "mine"


async def test_what_only_reads_has_no_line(server: Server, lines: Lines) -> None:
    for path in ("/health", "/metrics", "/info", "/v1/models"):
        assert (await server.client.get(path)).status == 200
    server.engine.give_up()
    assert (await server.client.get("/health")).status == 503
    assert not lines.all
    assert (await server.client.get("/no%20such")).status == 404
    assert lines.one() == {"route": "GET", "path": "/no%20such", "status": 404}


async def test_there_is_no_text_in_it(start: Start, lines: Lines, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    message = {"role": "user", "content": SECRET}
    for path, body in (
            ("/generate", {"inputs": SECRET}), ("/generate", {"inputs": SECRET, "parameters": {"stop": [SECRET]}}),
            ("/generate", {"inputs": [SECRET]}), ("/v1/completions", {"prompt": SECRET, "max_tokens": -1}),
            ("/v1/chat/completions", {"messages": [message]}), ("/v1/chat/completions", {"messages": message}),
            (f"/nothing?text={SECRET}", {})):
        await (await server.post(path, body)).read()
    assert len(lines.records) == 7
    assert SECRET not in "".join(map(JsonFormatter().format, lines.records))


async def test_both_forms_of_a_line(server: Server, lines: Lines) -> None:
    await server.generate("a", max_new_tokens=2, adapter_id=None)
    [record] = lines.records
    told = json.loads(JsonFormatter().format(record))
    assert {name: told[name] for name in ("level", "message", "target", "output_tokens", "stream")} == {
        "level": "INFO", "message": "POST /generate 200", "target": "penstock.requests", "output_tokens": 2,
        "stream": False}
    assert told["total_time"] == round(told["total_time"], 6) > 0
    text = TextFormatter().format(record)
    assert "  INFO penstock.requests: POST /generate 200 " in text
    assert ' route="POST /generate" status=200 stream=false answers=1 input_tokens=1 cached_tokens=0 output_tokens=2 ' \
           "finish_reason=length total_time=0." in text


@pytest.mark.parametrize(("value", "written"), [
    ("plain/1.0", "plain/1.0"), ("a b", '"a b"'), ("a\nb", r'"a\nb"'), ("a=b", '"a=b"'), ('a"b', r'"a\"b"'),
    ("ü\u2028", r'"\u00fc\u2028"'), ("", '""'), (3, "3"), (1.5, "1.500000s")])
def test_no_value_looks_like_another_field_or_line(value: object, written: str) -> None:
    record = logging.makeLogRecord({"name": "a", "levelname": "INFO", "msg": "b", "fields": {"c": value}})
    assert TextFormatter().format(record).endswith(f" a: b c={written}")


async def test_a_name_of_any_length_is_cut(server: Server, lines: Lines) -> None:
    await server.post("/generate", {"inputs": "a", "parameters": {"adapter_id": "x" * 5000}})
    assert lines.one()["adapter"] == "x" * 200


@pytest.mark.parametrize(("level", "has_requests", "is_written"), [
    ("INFO", True, True), ("INFO", False, False), ("WARNING", True, False)])
def test_whether_it_is_written(
    level: str, has_requests: bool, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    logger = logging.getLogger(logs.REQUESTS)
    monkeypatch.setattr(logger, "parent", parent := logging.Logger("root", level))
    try:
        logs.configure(level, json_output=False, has_requests=has_requests)
        assert logger.isEnabledFor(logging.INFO) == is_written, parent
    finally:
        for each in (logger, logging.getLogger("penstock")):
            each.setLevel(logging.NOTSET)


async def test_vectors_and_scores(start: Start, lines: Lines) -> None:
    server = await start(facts=EMBEDDER, make_fleet=lambda _: PoolingFleet())
    answer = await (await server.post("/v1/embeddings", {"input": ["a b", "c"]})).json()
    assert lines.one() == {
        "route": "POST /v1/embeddings", "status": 200, "stream": False, "answers": 2,
        "input_tokens": answer["usage"]["prompt_tokens"], "cached_tokens": 0, "output_tokens": 0,
        "finish_reason": "pooled,pooled"}
    await server.post("/v1/rerank", {"query": "", "documents": ["a"]})
    assert {name: lines.all[1][name] for name in ("route", "status", "error")} == {
        "route": "POST /v1/rerank", "status": 400, "error": "empty"}
