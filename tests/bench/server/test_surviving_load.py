"""The client of raw events that the load has."""

import asyncio

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from penstock.bench.server import surviving_load
from penstock.bench.server.surviving_load import KINDS, Target
from penstock.client import AsyncClient


async def test_errors_without_end_end_the_load_and_are_asked_for_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surviving_load, "SILENT_SECONDS", 0.2)
    num_asked = 0

    async def fail(request: web.Request) -> web.Response:
        nonlocal num_asked
        num_asked += 1
        return web.Response(body=b'data:{"error": "broken"}\n\n', headers={"penstock-answer": "a"})

    app = web.Application()
    app.router.add_post("/generate_stream", fail)
    async with TestServer(app) as server, ClientSession() as session, AsyncClient("http://unused") as client:
        target = Target(client, session, str(server.make_url("")).rstrip("/"))
        with pytest.raises(TimeoutError, match="the last error: broken"):
            async with asyncio.timeout(10):
                await KINDS["raw events"](target, 3, None)
    assert 1 < num_asked < 10
