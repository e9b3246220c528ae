"""Connections without file descriptors for them, and those that come as a site ends."""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from aiohttp import web

from penstock.router.api.http.site import Site
from penstock.router.app import make_runner

NUM_CLIENTS = 20
NUM_FREE = 3


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process open so many files more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    holes = max(used) + 1 - len(used) + 1  # the last is of the listing
    fillers = [os.open(os.devnull, os.O_RDONLY) for _ in range(holes)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(used | set(fillers)) + 1 + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for filler in fillers:
            os.close(filler)


async def answer(request: web.Request) -> web.Response:
    await asyncio.sleep(0.01)
    return web.Response(text="answered")


@asynccontextmanager
async def running() -> AsyncIterator[tuple[web.AppRunner, Site, list[socket.socket]]]:
    """A site that has not started, and clients whose connections wait for it."""
    app = web.Application()
    app.router.add_get("/", answer)
    runner = make_runner(app)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0), backlog=NUM_CLIENTS)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(NUM_CLIENTS)]
    try:
        yield runner, Site(runner, listener, backlog=NUM_CLIENTS), clients
    finally:
        await runner.cleanup()
        for client in clients:
            client.close()


def ask(client: socket.socket) -> bytes:
    client.settimeout(10)
    client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    return b"".join(iter(lambda: client.recv(1000), b""))


async def test_clients_wait_for_file_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (_, site, clients):
        asks = [asyncio.to_thread(ask, client) for client in clients]
        with free_descriptors(NUM_FREE):
            await site.start()
            answers = await asyncio.gather(*asks)
    assert all(text.endswith(b"answered") for text in answers)
    assert caplog.messages == ["no connection can be accepted (Too many open files): new ones wait"]


async def test_who_was_accepted_as_the_site_ends_is_answered() -> None:
    async with running() as (runner, site, clients):
        await site.start()
        while not site._opening:         # accepted in one turn, before the runner knows of any
            await asyncio.sleep(0)
        asks = [asyncio.create_task(asyncio.to_thread(ask, client)) for client in clients]
        await runner.cleanup()
        answers = await asyncio.gather(*asks)
    assert all(text.endswith(b"answered") for text in answers)
