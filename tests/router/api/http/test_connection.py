"""Clients that have ended their half of the connection, and clients that are gone: both send the same end of file."""

import asyncio
import gc
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from socket import SO_LINGER, SOL_SOCKET

import pytest
from aiohttp import web

from penstock.router.api.http import connection
from penstock.router.api.http.connection import CONTINUE, PROBE_SECONDS, Connection
from penstock.router.app import make_runner
from penstock.router.engine.stream import Stream
from penstock.router.generation.request_record import RequestRecord
from tests.eventually import until
from tests.router.api.conftest import Server

BODY = json.dumps({"inputs": "a"}).encode()


def request_to(path: str, more: bytes = b"", version: str = "1.1", body: bytes = BODY) -> bytes:
    head = f"POST {path} HTTP/{version}\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n"
    return head.encode() + more + b"\r\n" + body


@pytest.fixture
def fast_probes(monkeypatch: pytest.MonkeyPatch) -> tuple[float, ...]:
    """As many probes as ever, with shorter pauses."""
    seconds = tuple(each / 5 for each in PROBE_SECONDS)
    monkeypatch.setattr(connection, "PROBE_SECONDS", seconds)
    return seconds


@asynccontextmanager
async def half_closed(server: Server, data: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(data)
    writer.write_eof()
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_half_closed_client_gets_its_answer(server: Server) -> None:
    async with half_closed(server, request_to("/generate")) as (reader, _):
        answer = await reader.read()
    head, _, body = answer.replace(CONTINUE, b"").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(body)["generated_text"]
    await server.until_idle()


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_a_half_closed_client_waits_as_long_as_it_takes(
    server: Server, path: str, fast_probes: tuple[float, ...]
) -> None:
    server.fleet.may_answer.clear()
    async with half_closed(server, request_to(path)) as (reader, _):
        await until(lambda: bool(server.engine._requests))
        await asyncio.sleep(sum(fast_probes) + 0.2)
        assert server.engine._requests
        server.fleet.may_answer.set()
        answer = await reader.read()
    assert b'"generated_text":"' in answer
    probes = answer.count(b"3\r\n:\n\n\r\n") if path == "/generate_stream" else answer.count(CONTINUE)
    assert probes == len(fast_probes)


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_nothing_of_who_has_left_waits_for_the_garbage_collector(
    server: Server, path: str, fast_probes: tuple[float, ...]
) -> None:
    """What refers to itself stays until then, and the memory of a hundred of them is some megabytes."""
    gc.collect()
    of_other_tests = objects_of_requests()
    gc.disable()
    try:
        server.fleet.may_answer.clear()
        async with half_closed(server, request_to(path)):
            await until(lambda: bool(server.engine._requests))
            await asyncio.sleep(fast_probes[0])
            kinds = [type(each) for each in objects_of_requests() if each not in of_other_tests]
            assert {*kinds} == {Connection, RequestRecord, Stream}
        server.fleet.may_answer.set()
        await server.until_idle()
        async with asyncio.timeout(10):
            while [each for each in objects_of_requests() if each not in of_other_tests]:
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


def objects_of_requests() -> list[object]:
    return [each for each in gc.get_objects() if type(each) in (Connection, RequestRecord, Stream)]


async def test_requests_one_after_the_other_before_the_end_are_all_answered(server: Server) -> None:
    async with half_closed(server, request_to("/generate") * 3) as (reader, _):
        answer = await reader.read()
    assert answer.count(b'"generated_text"') == 3


async def test_the_end_of_an_old_client_is_its_leaving(server: Server) -> None:
    """It could not be asked whether it is still there."""
    server.fleet.may_answer.clear()
    reader, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(request_to("/generate", version="1.0"))
    await until(lambda: bool(server.engine._requests))
    writer.write_eof()
    await server.until_idle()
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_a_client_that_is_gone_is_told_from_it(server: Server, path: str) -> None:
    server.fleet.may_answer.clear()
    _, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(request_to(path))
    await until(lambda: bool(server.engine._requests))
    writer.close()
    await server.until_idle()
    assert server.series()['tgi_request_failure{err="dropped"}'] == 1


async def test_a_connection_that_is_reset_ends_its_request(server: Server) -> None:
    server.fleet.may_answer.clear()
    _, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(request_to("/generate"))
    await until(lambda: bool(server.engine._requests))
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    await server.until_idle()


@pytest.mark.parametrize("data", [b"", b"POST /gen", request_to("/generate", body=BODY[:3])])
async def test_an_end_in_the_middle_of_a_request_ends_the_connection(
    server: Server, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async with half_closed(server, data) as (reader, _):
        assert await reader.read() == b""
    assert await server.generate()
    assert not caplog.records


async def test_an_end_between_requests_ends_the_connection(server: Server) -> None:
    reader, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(request_to("/generate"))
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    await server.until_idle()
    writer.write_eof()
    assert (await reader.read()).endswith(b"}")
    writer.close()


@pytest.mark.parametrize("asks", [True, False])
async def test_a_client_that_was_just_accepted_is_heard_though_the_server_ends(
    asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not ask is not waited for, beyond a moment."""
    if not asks:
        monkeypatch.setattr(connection, "FIRST_REQUEST_SECONDS", 0.1)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="here you are")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = make_runner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    reader, writer = await asyncio.open_connection(*runner.addresses[0])
    await until(lambda: bool(runner.server and runner.server.connections))
    ending = asyncio.create_task(runner.cleanup())
    await until(lambda: not runner.sites)
    if asks:
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await reader.read()).partition(b"\r\n\r\n")[2] == (b"here you are" if asks else b"")
        await ending
    writer.close()


@pytest.mark.parametrize("turns", range(5))
async def test_no_connection_outlives_the_server_however_late_it_was_accepted(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """turns: of the event loop between the client's connecting and the server's end."""
    monkeypatch.setattr(connection, "FIRST_REQUEST_SECONDS", 0.02)
    runner = make_runner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    with socket.create_connection(runner.addresses[0]) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await runner.cleanup()
        client.settimeout(10)
        with suppress(ConnectionResetError):  # the system's answer where it was not accepted at all
            assert await asyncio.to_thread(client.recv, 1) == b""
