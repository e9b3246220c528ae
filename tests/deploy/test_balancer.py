"""nginx, with the configuration of the profile `replicas`, between clients and two servers."""

import asyncio
import getpass
import io
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from tests.paths import ROOT

CONFIGURATION = ROOT / "deploy/compose/nginx.conf"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Balance = Callable[[Handler, Handler], Awaitable[aiohttp.ClientSession]]


async def server(handler: Handler) -> TestServer:
    app = web.Application(client_max_size=0)
    app.router.add_post("/generate", handler)
    started = TestServer(app)
    await started.start_server()
    return started


def start_nginx(folder: Path, ports: tuple[int, int], port: int) -> subprocess.Popen[bytes]:
    text = CONFIGURATION.read_text().replace("/tmp/", f"{folder}/").replace("listen 8080", f"listen 127.0.0.1:{port}")
    text = text.replace("worker_processes auto", "worker_processes 1")
    for name, its_port in zip(("penstock:80", "penstock-b:80"), ports, strict=True):
        text = text.replace(f"server {name}", f"server 127.0.0.1:{its_port}")
    (folder / "nginx.conf").write_text(text)
    as_itself = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""  # as nobody, it could not enter the folder
    return subprocess.Popen(
        ["nginx", "-e", "/dev/null", "-c", str(folder / "nginx.conf"), "-g", f"daemon off; {as_itself}"])


async def until_open(port: int, program: subprocess.Popen[bytes]) -> None:
    while True:
        assert program.poll() is None, "nginx has ended"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


@pytest.fixture
async def balance(tmp_path: Path) -> AsyncIterator[Balance]:
    """Starts nginx before two servers that answer by the handlers, and gives a client of it."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    async with AsyncExitStack() as closing:
        async def begin(first: Handler, second: Handler) -> aiohttp.ClientSession:
            servers = [await server(handler) for handler in (first, second)]
            for each in servers:
                closing.push_async_callback(each.close)
            port = unused_port()
            program = start_nginx(tmp_path, (servers[0].port, servers[1].port), port)
            closing.callback(program.wait)
            closing.callback(program.terminate)
            await asyncio.wait_for(until_open(port, program), timeout=60)
            return await closing.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{port}"))

        yield begin


async def answers(request: web.Request) -> web.StreamResponse:
    return web.Response(text=f"{len(await request.read())} bytes")


async def is_full(request: web.Request) -> web.StreamResponse:
    return web.Response(status=429, text="Model is overloaded")


async def is_ending(request: web.Request) -> web.StreamResponse:
    return web.Response(status=503)


async def breaks_off(request: web.Request) -> web.StreamResponse:
    assert request.transport
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize("other", [is_full, is_ending, breaks_off])
async def test_a_server_that_cannot_answer_is_passed_over(balance: Balance, other: Handler) -> None:
    client = await balance(other, answers)
    for _ in range(4):
        async with client.post("/generate", data=b"abc") as response:
            assert (response.status, await response.text()) == (200, "3 bytes")


async def test_two_servers_that_are_full_answer_so_each_time(balance: Balance) -> None:
    client = await balance(is_full, is_full)
    for _ in range(4):
        async with client.post("/generate", data=b"abc") as response:
            assert (response.status, await response.text()) == (429, "Model is overloaded")


async def test_a_stream_goes_on_as_it_comes(balance: Balance) -> None:
    has_come = asyncio.Semaphore(0)

    async def streams(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for index in range(3):
            await response.write(b"data: %d\n\n" % index)
            await has_come.acquire()
        return response

    client = await balance(streams, streams)
    async with client.post("/generate", data=b"abc") as response:
        for index in range(3):
            assert await response.content.readuntil(b"\n\n") == b"data: %d\n\n" % index
            has_come.release()
        assert await response.content.read() == b""


@pytest.mark.parametrize(("size", "status"), [(2_000_000, 200), (2_000_001, 413)])
async def test_a_body_may_be_as_large_as_the_server_takes(balance: Balance, size: int, status: int) -> None:
    client = await balance(answers, answers)
    async with client.post("/generate", data=io.BytesIO(b"a" * size)) as response:
        assert response.status == status
