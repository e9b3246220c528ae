"""Servers elsewhere that fail: before their answers begin, another one is asked; afterwards the client is told."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientPayloadError, web

from penstock.router.foreign import source as source_room
from tests.certificates import authority
from tests.eventually import until
from tests.router.api.conftest import Server
from tests.router.api.foreign.conftest import Front, Handler, Stranger, url_of

PROMPT: dict[str, Any] = {"model": "far", "prompt": "Who?", "max_tokens": 9}
NOBODY = "http://127.0.0.1:9"
EVENT = b'data: {"n":1}\n\n'


async def ask(server: Server, path: str = "/v1/completions", **more: object) -> tuple[int, bytes, Any]:
    response = await server.client.post(path, json={**PROMPT, **more})
    return response.status, await response.read(), response.headers


def saying(status: int, text: str = "{}", kind: str = "application/json", **headers: str) -> Handler:
    async def say(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type=kind, headers=headers)

    return say


def streaming(*parts: bytes, ends: bool = True, waits: asyncio.Event | None = None) -> Handler:
    """Streams the parts, then waits for the event, and breaks off unless it `ends`."""
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if waits is not None:
            await waits.wait()
        if not ends:
            assert request.transport is not None
            request.transport.abort()
        return response

    return stream


async def counts(server: Server) -> dict[str, float]:
    text = await (await server.client.get("/metrics")).text()
    return {line.split("outcome=")[1].split('"')[1]: float(line.split()[-1]) for line in text.splitlines()
            if line.startswith("penstock_source_requests_total{")}


@pytest.mark.parametrize(("handler", "outcome"), [
    (saying(500), "failed"), (saying(503, "<html>", "text/html"), "failed"), (saying(429), "overloaded"),
    (saying(401, "no"), "unauthorized"), (saying(403), "unauthorized"), (saying(307, location="http://x"), "failed"),
    (streaming(ends=False), "failed"), (streaming(b": ping\n\n", ends=False), "failed"), (streaming(), "failed")])
async def test_the_next_server_is_asked(
    front: Front, stranger: Stranger, other: Server, handler: Handler, outcome: str
) -> None:
    stranger.handler = handler
    server = await front(far={"url": [stranger.url, url_of(other)], "model": "demo"})
    for _ in range(2):
        status, told, headers = await ask(server, stream=True)
        assert (status, b"I" in told, headers["penstock-source"]) == (200, True, url_of(other))
    assert len(stranger.paths) == 1  # it is skipped afterwards
    assert await counts(server) == {outcome: 1, "answered": 2}


async def test_a_certificate_that_nobody_knows(front: Front, tmp_path: Path) -> None:
    tls = authority(tmp_path / "ca").issue("elsewhere", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.cert, tls.key)
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "localhost", 0, ssl=context) as far:
        server = await front(far={"url": f"https://localhost:{far.sockets[0].getsockname()[1]}"})
        status, told, _ = await ask(server)
    assert status == 502
    assert b"no connection: unable to get local issuer certificate" in told


@pytest.mark.parametrize(("kind", "outcome"), [("overloaded", "overloaded"), ("generation", "failed")])
async def test_an_error_as_the_first_event_is_one_before_the_first_token(
    front: Front, stranger: Stranger, other: Server, kind: str, outcome: str
) -> None:
    event = b'data:{"error":"no","error_type":"%b"}\n\n' % kind.encode()
    stranger.handler = streaming(b":\n\n", event)
    tgi = {"api": "tgi", "url": [stranger.url, url_of(other)]}
    server = await front(far=tgi, lone={"api": "tgi", "url": stranger.url})

    async def generate(name: str) -> bytes:
        body = {"inputs": "Who?", "parameters": {"max_new_tokens": 2}}
        response = await server.client.post(f"/models/{name}/generate_stream", json=body)
        assert response.status == 200
        return await response.read()

    assert b"error" not in await generate("far")
    assert await counts(server) == {outcome: 1, "answered": 1}
    assert await generate("lone") == b":\n\n" + event


async def test_an_error_of_the_request_is_passed_on(front: Front, stranger: Stranger, other: Server) -> None:
    event = b'data:{"error":"no","error_type":"validation"}\n\n'
    stranger.handler = streaming(event)
    server = await front(far={"api": "tgi", "url": [stranger.url, url_of(other)]})
    response = await server.client.post("/models/far/generate_stream", json={"inputs": "Who?"})
    assert await response.read() == event


async def test_a_server_that_can_not_be_reached_or_is_too_slow_is_passed_over(
    front: Front, stranger: Stranger, other: Server
) -> None:
    waits = asyncio.Event()
    stranger.handler = streaming(waits=waits)
    server = await front(far={"url": [NOBODY, stranger.url, url_of(other)], "model": "demo", "first_timeout": 1.0})
    assert (await ask(server))[0] == 200
    assert await counts(server) == {"unreachable": 1, "timeout": 1, "answered": 1}
    await until(lambda: stranger.num_left == 1)


async def test_a_server_that_was_skipped_is_asked_when_no_other_is_left(front: Front, stranger: Stranger) -> None:
    server = await front(far={"url": stranger.url})
    assert [(await ask(server))[0] for _ in range(2)] == [502, 502]
    stranger.handler = saying(200, '{"a":1}')
    assert (await ask(server))[:2] == (200, b'{"a":1}')


async def test_a_server_that_was_skipped_is_asked_again_after_a_while(
    front: Front, stranger: Stranger, other: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_room, "SKIP_SECONDS", 0.0)
    server = await front(far={"url": [stranger.url, url_of(other)], "model": "demo"})
    for _ in range(2):
        assert (await ask(server))[0] == 200
    assert len(stranger.paths) == 2


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
async def test_the_last_servers_status_and_words_are_passed_on(
    front: Front, stranger: Stranger, status: int
) -> None:
    stranger.handler = saying(status, '{"error": {"message": "no"} }', **{"retry-after": "7"})
    server = await front(far={"url": [NOBODY, stranger.url]})
    found, told, headers = await ask(server)
    assert (found, told) == (status, b'{"error": {"message": "no"} }')
    assert (headers["retry-after"], headers["penstock-source"]) == ("7", stranger.url)


@pytest.mark.parametrize(("path", "word"), [("/v1/completions", b'"code":"source_failed"'),
                                            ("/v1/messages", b'"type":"api_error"')])
async def test_where_no_server_has_words_for_it_the_failure_has_the_routes_shape(
    front: Front, stranger: Stranger, path: str, word: bytes
) -> None:
    stranger.handler = saying(401, '{"error": "wrong key sk-1"}')
    server = await front(far={"url": [NOBODY, stranger.url]})
    status, told, _ = await ask(server, path, max_tokens=1, messages=[])
    assert status == 502
    assert word in told
    assert f"{NOBODY}: no connection: Connection refused; {stranger.url}: status 401".encode() in told
    assert b"sk-1" not in told
    assert (await (await server.client.get("/v1/models/far")).json())["state"] == "failed"


async def test_a_time_out_has_a_status_of_its_own(front: Front, stranger: Stranger) -> None:
    stranger.handler = streaming(waits=asyncio.Event())
    server = await front(far={"url": stranger.url, "first_timeout": 0.05})
    status, told, _ = await ask(server)
    assert (status, b"no answer within 0.05 s" in told) == (504, True)


@pytest.mark.parametrize(("path", "last"), [
    ("/v1/completions", b'data: {"error":{"message":"the answer of URL broke off","type":"server_error","param":null,'
                        b'"code":"source_failed"},"request_id":"me"}\n\ndata: [DONE]\n\n'),
    ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"the answer of URL '
                     b'broke off"},"request_id":"me"}\n\n'),
    ("/v1/responses", b'event: error\ndata: {"type":"error","code":"source_failed","message":"the answer of URL broke '
                      b'off","param":null}\n\n'),
    ("/generate_stream", b'data: {"error":"the answer of URL broke off","error_type":"source"}\n\n')])
async def test_a_stream_that_breaks_off_ends_with_an_event_behind_whole_ones(
    front: Front, stranger: Stranger, other: Server, path: str, last: bytes
) -> None:
    stranger.handler = streaming(EVENT, b'data: {"n', ends=False)
    server = await front(far={"url": [stranger.url, url_of(other)],
                              "api": "tgi" if path == "/generate_stream" else "openai"})
    response = await server.client.post(path, json=PROMPT, headers={"penstock-model": "far", "x-request-id": "me"})
    assert await response.read() == EVENT + last.replace(b"URL", stranger.url.encode())
    assert await counts(server) == {"broken": 1}


async def test_a_stream_that_pauses_for_too_long_ends(front: Front, stranger: Stranger) -> None:
    stranger.handler = streaming(EVENT, waits=asyncio.Event())
    server = await front(far={"url": stranger.url, "pause_timeout": 0.05})
    assert b"paused for 0.05 s" in (await ask(server))[1]


async def test_events_are_passed_on_as_they_come_and_byte_for_byte(front: Front, stranger: Stranger) -> None:
    waits = asyncio.Event()
    sent = EVENT + b": a comment\n\nid: 7\r\nevent:x\r\ndata:  spaces \r\n\r\n"
    stranger.handler = streaming(sent, b"data: cut", waits=waits)
    server = await front(far={"url": stranger.url})
    response = await server.client.post("/v1/completions", json=PROMPT)
    assert await response.content.readexactly(len(sent)) == sent
    waits.set()
    assert await response.read() == b"data: cut"


async def test_a_long_answer_is_passed_on_as_it_comes(
    front: Front, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.router.foreign.answer.WHOLE", 4)
    numbers = orjson.dumps(list(range(100_000)))
    stranger.handler = saying(200, numbers.decode())
    server = await front(far={"url": stranger.url})
    assert (await ask(server, "/v1/embeddings", input="a"))[1] == numbers

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        response.content_length = 100
        await response.prepare(request)
        await response.write(numbers[:10])
        assert request.transport is not None
        request.transport.close()
        return response

    stranger.handler = cut
    with pytest.raises(ClientPayloadError):
        await ask(server, "/v1/embeddings", input="a")


@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_leaves_ends_the_connection_there(front: Front, stranger: Stranger, begun: bool) -> None:
    stranger.handler = streaming(*([EVENT] if begun else []), waits=asyncio.Event())
    server = await front(far={"url": stranger.url})
    asking = asyncio.create_task(server.client.post("/v1/completions", json=PROMPT))
    await until(lambda: len(stranger.paths) == 1)
    if begun:
        response = await asking
        await response.content.readexactly(len(EVENT))
        response.close()
    else:
        asking.cancel()
    await until(lambda: stranger.num_left == 1)
    assert await counts(server) == {"left": 1}
    text = await (await server.client.get("/metrics")).text()
    assert 'penstock_requests_total{model="far",route="/v1/completions",status="499"} 1.0' in text
    assert 'tgi_request_failure{model="far",err="dropped"} 1.0' in text


async def test_no_more_requests_run_than_the_model_may_have(front: Front, stranger: Stranger) -> None:
    waits = asyncio.Event()
    stranger.handler = streaming(EVENT, waits=waits)
    server = await front(far={"url": stranger.url, "max_concurrent_requests": 1})
    first = await server.client.post("/v1/completions", json=PROMPT)
    status, told, _ = await ask(server)
    assert (status, b"rate_limit_exceeded" in told) == (429, True)
    waits.set()
    assert await first.read() == EVENT
    assert (await ask(server))[0] == 200
