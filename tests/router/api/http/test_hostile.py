"""Clients that send too much, too slowly or no HTTP at all: refused or cut off, and the others are answered beside."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from aiohttp import web
from pydantic import BaseModel, ValidationError

from penstock.router.api.clouds.vertex import VertexBody
from penstock.router.api.http import sse
from penstock.router.api.http.connection import MAX_HEADERS, MAX_LINE
from penstock.router.api.http.headers import SERVER_NAME
from penstock.router.api.http.route import JSON, Route
from penstock.router.api.openai.bodies import ChatBody
from penstock.router.logs import REQUESTS
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start

HEAD = b"POST /generate HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
TOO_LONG = b"Failed to buffer the request body: length limit exceeded"
SERVER = f"\r\nServer: {SERVER_NAME}\r\n".encode()
PATIENCE = 20.0


@asynccontextmanager
async def connection(server: Server) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(server.client.host, server.client.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchange(server: Server, data: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    async with connection(server) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(data)
        return await reader.read()


def status(answer: bytes) -> int:
    return int(answer.split()[1])


async def test_a_body_that_says_it_is_too_long_is_not_read(server: Server) -> None:
    async with connection(server) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(HEAD + b"content-length: 100000000\r\n\r\n")
        answer = await reader.readuntil(TOO_LONG)
    assert status(answer) == 413
    assert await server.generate()


async def test_a_body_without_a_length_is_cut_off_at_the_limit(server: Server) -> None:
    chunk = b"%x\r\n%b\r\n" % (2**16, b"a" * 2**16)
    num_sent = 0
    async with connection(server) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        answering = asyncio.create_task(reader.readuntil(TOO_LONG))
        other = asyncio.create_task(server.generate())
        while not answering.done():
            writer.write(chunk)
            await writer.drain()
            num_sent += len(chunk)
        assert status(await answering) == 413
    assert num_sent < 16_000_000, "the rest is what the sockets hold"
    assert await other


@pytest.mark.slow
async def test_a_body_that_lies_about_its_length(start: Start) -> None:
    server = await start(replace(LIMITS, body_timeout=0.1))
    body = b'{"inputs": "a"}'
    assert status(await exchange(server, HEAD + b"content-length: 99\r\n\r\n" + body)) == 408
    assert status(await exchange(server, HEAD + b"content-length: 15\r\n\r\n" + body + b"and more")) == 400
    assert await server.generate()


async def test_headers_that_drip(start: Start) -> None:
    server = await start(idle_seconds=0.3)
    async with connection(server) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(HEAD + b"x-slow: ")
        end = asyncio.create_task(reader.read())
        while not end.done():
            writer.write(b"a")
            assert await server.generate(max_new_tokens=1)
        with suppress(ConnectionResetError):
            assert await end == b""


@pytest.mark.slow
async def test_a_body_that_drips(start: Start) -> None:
    server = await start(replace(LIMITS, body_timeout=0.2))
    async with connection(server) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(HEAD + b"content-length: 1000\r\n\r\n{")
        end = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        while not end.done():
            writer.write(b" ")
            assert await server.generate(max_new_tokens=1)
        answer = await end
        assert status(answer) == 408
        assert b"content-type: text/plain" in answer.lower()
        assert await reader.read()


async def test_many_idle_connections(start: Start) -> None:
    server = await start(idle_seconds=1.0)
    idle = [await asyncio.open_connection(server.client.host, server.client.port) for _ in range(300)]
    assert await server.generate()
    async with asyncio.timeout(PATIENCE):
        assert [await reader.read() for reader, _ in idle] == [b""] * len(idle)
    for _, writer in idle:
        writer.close()


async def test_a_client_that_leaves_in_the_middle_of_its_body(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with connection(server) as (_, writer):
        writer.write(HEAD + b"content-length: 1000\r\n\r\n{")
        await writer.drain()
        assert await server.generate()
    assert await server.generate()
    await server.until_idle()
    assert not caplog.records


def lines_of_others(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The lines of the log, but for that of the request which is answered meanwhile."""
    return [line for line in caplog.records if (line.name, line.getMessage()) != (REQUESTS, "POST /generate 200")]


@pytest.mark.parametrize("data", [
    b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 1000,
    b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n",
    HEAD + b"content-length: -1\r\n\r\n", HEAD + b"content-length: 1e9\r\n\r\n",
    HEAD + b"content-length: 15\r\ncontent-length: 16\r\n\r\n",
    HEAD + b"content-length: 15\r\ntransfer-encoding: chunked\r\n\r\n",
    HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}too long\r\n",
], ids=lambda data: repr(data[-20:]))
async def test_what_is_no_http(server: Server, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    caplog.set_level(logging.INFO)
    other = asyncio.create_task(server.generate())
    answer = await exchange(server, data)
    assert status(answer) == 400
    assert SERVER in answer
    assert await other
    assert lines_of_others(caplog) == [], "a header that can't be read may hold a key"


LINE = b"a" * (MAX_LINE - 100)


async def test_an_expectation_that_nobody_can_meet(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for path in (b"/generate", b"/v1/completions"):
        data = b"POST " + path + b" HTTP/1.1\r\nhost: here\r\nexpect: wonders\r\nconnection: close\r\n\r\n"
        assert status(await exchange(server, data)) == 417
    assert caplog.records == []


@pytest.mark.parametrize("data", [
    b"GET /?" + LINE + b" HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nx: " + LINE + b"\r\n",
    b"GET /health HTTP/1.1\r\n" + b"".join(b"x-%d: %b\r\n" % (number, b"a" * 9_000) for number in range(20))])
async def test_a_head_as_long_as_proxies_send(server: Server, data: bytes) -> None:
    for size in (1 << 18, 1 << 12):
        async with connection(server) as (reader, writer), asyncio.timeout(PATIENCE):
            for start in range(0, len(data), size):
                writer.write(data[start:start + size])
                await writer.drain()
            writer.write(b"host: here\r\nconnection: close\r\n\r\n")
            assert status(await reader.read()) == 200


@pytest.mark.parametrize("data", [
    b"GET /" + b"a" * MAX_LINE + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"a" * MAX_LINE + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"a" * MAX_LINE + b": x\r\n\r\n", b"GET /" + b"a" * MAX_LINE,
    b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: %b\r\n" % (number, LINE) for number in range(5)),
    b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % number for number in range(MAX_HEADERS + 1)) + b"\r\n",
], ids=lambda data: f"{data[:20]!r} {len(data)}")
async def test_a_head_that_is_too_long(server: Server, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    caplog.set_level(logging.INFO)
    answer = await exchange(server, data)
    assert status(answer) == 431
    assert SERVER in answer
    assert answer.endswith(b"The request line and each header may have up to 65536 bytes, and all of them together up "
                           b"to 262144; there may be up to 128 headers.")
    assert await server.generate()
    assert lines_of_others(caplog) == []


async def test_an_encoding_that_is_no_text(server: Server) -> None:
    head = HEAD + b"content-encoding: \xff\r\ncontent-length: 2\r\nconnection: close\r\n\r\n"
    answer = await exchange(server, head + b"{}")
    assert status(answer) == 415


async def test_a_head_behind_a_large_body(server: Server) -> None:
    """A body's bytes count for no head."""
    body = b'{"inputs": "%b"}' % (b"a" * 1_000_000)
    requests = (HEAD + b"content-length: %d\r\n\r\n" % len(body) + body) * 2 + (
        b"GET /health HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
    answer = await exchange(server, requests)
    assert (answer.count(b"HTTP/1.1 422"), answer.count(b"HTTP/1.1 200")) == (2, 1)


@pytest.mark.parametrize(("parameters", "what"), [
    (json.dumps({"stop": [str(number) for number in range(10_000)]}), "supports up to 4 stop sequences"),
    ('{"max_new_tokens": 1' + "0" * 5000 + "}", "parameters.max_new_tokens"),
    ('{"seed": 18446744073709551616}', "parameters.seed"),
    ('{"temperature": 1e-999}', "must be strictly positive"),
    ('{"stop": [' + "[" * 500 + "]" * 500 + "]}", "parameters.stop[0]"),
    (json.dumps({"adapter_id": "a" * 1_900_000}), "`adapter_id` is not supported"),
], ids=lambda text: text[:30])
async def test_values_beyond_reason(server: Server, parameters: str, what: str) -> None:
    other = asyncio.create_task(server.generate())
    response = await server.client.post(
        "/generate", data=io.BytesIO(f'{{"inputs": "a", "parameters": {parameters}}}'.encode()),
        headers={"content-type": "application/json"})
    text = await response.text()
    assert response.status in (400, 422), text
    assert what in text or response.status == 400
    assert len(text) < 500
    assert await other


CHAT, PART = '{"role": "user", "content": "a"}', '{"type": "text", "text": "a"}'


def listed(item: str, number: int) -> str:
    return f"[{','.join([item] * number)}]"


TALK = f'{{"messages": {listed(CHAT, 80)}}}'


@pytest.mark.parametrize(("path", "body", "what"), [
    ("/v1/chat/completions", f'{{"messages": {listed(CHAT, 10_001)}}}', "up to 10000 messages, parts and calls"),
    ("/v1/chat/completions",
     f'{{"messages": [{{"role": "user", "content": {listed(PART, 10_000)}}}]}}', "Given: 10001"),
    ("/v1/chat/completions",
     f'{{"messages": [{CHAT}, {{"role": "assistant", "tool_calls": {listed("1", 9_999)}}}]}}', "Given: 10001"),
    ("/v1/completions", f'{{"prompt": {listed("[]", 10_001)}}}', "up to 10000 lists of token ids"),
    ("/vertex", f'{{"instances": {listed(TALK, 128)}}}', "Given: 10240"),
], ids=lambda text: text[:50])
async def test_more_items_than_are_looked_at(server: Server, path: str, body: str, what: str) -> None:
    response = await server.client.post(path, data=io.BytesIO(body.encode()), headers={"content-type": JSON})
    text = await response.text()
    assert response.status == (400 if path.startswith("/v1/") else 422)
    assert what in text
    assert len(text) < 300


@pytest.mark.parametrize(("schema", "body"), [
    (ChatBody, {"messages": [1] * 5000}),
    (ChatBody, {"messages": [{}] * 5000}),
    (ChatBody, {"messages": [{"role": "user", "content": [1] * 5000}]}),
    (ChatBody, {"messages": [{"role": "user", "tool_calls": [1] * 5000}]}),
    (ChatBody, {"messages": [{"role": "user", "content": ""}], "tools": [1] * 100}),
    (VertexBody, {"instances": [1] * 1000}),
], ids=str)
def test_of_many_wrong_items_the_first_is_enough(schema: type[BaseModel], body: object) -> None:
    with pytest.raises(ValidationError) as caught:
        schema.model_validate(body)
    assert caught.value.error_count() <= 3


async def test_requests_without_end_on_one_connection(server: Server) -> None:
    """More than are worked on are not taken from the socket."""
    async with connection(server) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n" * 2000)
        assert await server.generate()
        answered = b""
        while answered.count(b"HTTP/1.1 200") < 2000:
            answered += await reader.read(2**16)


async def test_a_stream_that_is_not_read_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would hold its permit for as long as its client likes."""
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.05)
    monkeypatch.setattr(sse, "UNREAD_SECONDS", 0.2)
    has_ended = asyncio.Event()

    async def events() -> AsyncGenerator[sse.AnswerEvent]:
        try:
            while True:
                yield sse.AnswerEvent(0, b"a" * 1_000_000)
        finally:
            has_ended.set()

    async def stream(request: web.Request) -> web.StreamResponse:
        return await sse.stream_events(request, {}, events(), sse.EventStyle(lambda error: b""))

    server = await start(more_routes=[Route("GET", "/endless", stream, "", {})])
    async with connection(server) as (_, writer), asyncio.timeout(PATIENCE):
        writer.write(b"GET /endless HTTP/1.1\r\nhost: here\r\n\r\n")
        await has_ended.wait()
    assert await server.generate()
