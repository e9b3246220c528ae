"""Lines of batches: which are requests, and what is said of the others."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from penstock.router.batches.lines import LineError, RawLine, most_sequences, raw_lines, read_line, repeated
from tests.fakes import LIMITS

GOOD: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "One"}}
SMALL = dataclasses.replace(LIMITS, payload_limit=200)


async def in_parts(content: bytes, size: int) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), size):
        yield content[begin:begin + size]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_lines_come_out_of_parts_of_any_size(size: int) -> None:
    content = b"one\n\n  \r\ntwo two\r\nfour"
    assert [line async for line in raw_lines(in_parts(content, size), 100)] == [
        RawLine(1, b"one", 3), RawLine(4, b"two two\r", 8), RawLine(5, b"four", 4)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_blank_lines_count(size: int) -> None:
    content = b"\n \n\t\r\n" * 100 + b" one\n" + b"\n" * 50 + b" " * 200 + b"\n" * 50 + b"two"
    assert [line async for line in raw_lines(in_parts(content, size), 1000)] == [
        RawLine(301, b" one", 4), RawLine(402, b"two", 3)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_of_a_line_that_is_too_long_little_is_held(size: int) -> None:
    content = b"x" * 5000 + b"\nshort\n" + b"y" * 3000
    assert [line async for line in raw_lines(in_parts(content, size), 10)] == [
        RawLine(1, b"x" * 11, 5000), RawLine(2, b"short", 5), RawLine(3, b"y" * 11, 3000)]


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_line_is_too_long_though_it_begins_with_blanks(end: bytes) -> None:
    content = b"one\n" + b" " * 11 + b"two" + end
    assert [line async for line in raw_lines(in_parts(content, 5), 10)] == [
        RawLine(1, b"one", 3), RawLine(2, b" " * 11, 14)]


def test_a_request() -> None:
    content = orjson.dumps(GOOD)
    line = read_line(RawLine(7, content, len(content)), LIMITS, "/v1/completions")
    assert (line.number, line.custom_id, line.url, line.body) == (7, "a", "/v1/completions", {"prompt": "One"})


def changed(**fields: object) -> bytes:
    return orjson.dumps({name: value for name, value in {**GOOD, **fields}.items() if value is not ...})


@pytest.mark.parametrize(("content", "sentence", "code", "param"), [
    (b"{", "it can't be read: unexpected end of data", "invalid_json_line", None),
    (b"[1]", "it must be a JSON object. Given: a list", "invalid_json_line", None),
    (b"[" * 70_000, "it must have at most 200 bytes. Given: 70000", "line_too_long", None),
    (changed(custom_id=...), "missing field `custom_id`", "missing_required_parameter", "custom_id"),
    (changed(custom_id=5), "`custom_id` must be a string. Given: 5", "invalid_type", "custom_id"),
    (changed(custom_id=""), "`custom_id` must have 1 to 255 characters. Given: 0", "invalid_custom_id", "custom_id"),
    (changed(method=...), "missing field `method`", "missing_required_parameter", "method"),
    (changed(method="GET"), "`method` must be POST. Given: `GET`", "invalid_method", "method"),
    (changed(url=...), "missing field `url`", "missing_required_parameter", "url"),
    (changed(url="/v1/images"), "`url` must be one of /v1/chat/completions, /v1/completions, "
     "/v1/responses, /v1/embeddings. Given: `/v1/images`", "invalid_url", "url"),
    (changed(url="/v1/chat/completions"), "`url` must be the batch's endpoint, /v1/completions. Given: "
     "`/v1/chat/completions`", "mismatched_url", "url"),
    (changed(body=...), "missing field `body`", "missing_required_parameter", "body"),
    (changed(body="x"), "`body` must be an object. Given: `x`", "invalid_type", "body"),
    (changed(body={"stream": True}), "`body.stream` must be false or absent, for a batch has whole answers. "
     "Given: true", "invalid_value", "body.stream"),
])
def test_what_is_no_request(content: bytes, sentence: str, code: str, param: str | None) -> None:
    with pytest.raises(LineError) as caught:
        read_line(RawLine(3, content[:201], len(content)), SMALL, "/v1/completions")
    error = caught.value
    assert str(error).startswith(f"line 3: {sentence}")
    assert (error.number, error.code, error.param) == (3, code, param)


def test_a_line_of_too_much_is_not_parsed() -> None:
    content = b'{"custom_id":' + b"[" * 70_000
    with pytest.raises(LineError, match="line 1: it can't be read: it has more than 65536 texts, names of fields"):
        read_line(RawLine(1, content, len(content)), LIMITS)


def test_a_custom_id_that_two_lines_have() -> None:
    error = repeated(9, "a", 2)
    assert str(error) == "line 9: `custom_id` must be another one in each line. Given: `a`, as in line 2"
    assert (error.number, error.code, error.param) == (9, "duplicate_custom_id", "custom_id")


@pytest.mark.parametrize(("body", "number"), [
    ({"messages": []}, 1), ({"messages": [], "n": 4}, 4), ({"prompt": "One", "n": 2, "best_of": 5}, 5),
    ({"prompt": ["One", "Two"], "n": 3}, 6), ({"prompt": [1, 2, 3], "n": 2}, 2), ({"prompt": [[1], [2, 3]]}, 2),
    ({"prompt": "One", "n": "many", "best_of": None}, 1), ({"prompt": [], "n": -1}, 1),
    ({"prompt": "One", "n": 8, "use_beam_search": True}, 8)])
def test_a_line_takes_a_sequence_for_each_answer_to_each_prompt(body: dict[str, Any], number: int) -> None:
    assert most_sequences("/v1/completions", body) == number


@pytest.mark.parametrize(("inputs", "number"), [("One", 1), (["One", "Two"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2)])
def test_a_line_takes_a_sequence_for_each_text(inputs: object, number: int) -> None:
    assert most_sequences("/v1/embeddings", {"input": inputs}) == number
    assert most_sequences("/v1/responses", {"input": inputs}) == 1
