"""What load balancers and Kubernetes ask."""

import asyncio
from dataclasses import replace

import pytest

from penstock.router.fleet.errors import FleetError
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start


@pytest.mark.parametrize("path", ["/", "/health", "/ping"])
async def test_health(server: Server, path: str) -> None:
    response = await server.client.get(path)
    assert (response.status, await response.read()) == (200, b"")
    server.fleet.failure = ZeroDivisionError("gone")
    response = await server.post("/generate", {"inputs": "a"})
    assert (response.status, await response.json()) == (424, {
        "error": "Request failed during generation: Server error: gone", "error_type": "generation"})
    await server.is_to_end.wait()
    response = await server.client.get(path)
    assert (response.status, await response.json()) == (503, {"error": "unhealthy", "error_type": "healthcheck"})


async def test_health_while_a_lost_group_comes_back(server: Server) -> None:
    server.fleet.may_open.clear()
    server.fleet.failure = FleetError("gone")
    waiting = asyncio.create_task(server.generate())
    await until(lambda: server.series()["penstock_group_restarts"] == 1)
    assert (await server.client.get("/health")).status == 200
    server.fleet.may_open.set()
    assert (await waiting)["generated_text"]
    assert server.series()["penstock_replays"] == 1


async def test_ready_while_the_group_is_there(server: Server) -> None:
    await until(lambda: server.engine.has_group)
    response = await server.client.get("/readyz")
    assert (response.status, await response.read()) == (200, b"")
    server.fleet.may_open.clear()
    server.fleet.failure = FleetError("gone")
    waiting = asyncio.create_task(server.generate())
    await until(lambda: not server.engine.has_group)
    response = await server.client.get("/readyz")
    assert (response.status, await response.json()) == (503, {
        "error": "the shards are being started", "error_type": "healthcheck"})
    server.fleet.may_open.set()
    await waiting
    assert (await server.client.get("/readyz")).status == 200


async def test_alive_while_requests_advance(start: Start) -> None:
    server = await start(replace(LIMITS, step_timeout=0, max_shard_downtime=0))
    server.fleet.may_answer.clear()
    assert (await server.client.get("/livez")).status == 200
    waiting = asyncio.create_task(server.generate())
    async with asyncio.timeout(20):
        while (response := await server.client.get("/livez")).status == 200:
            await asyncio.sleep(0.01)
    body = await response.json()
    assert (response.status, body["error_type"]) == (503, "healthcheck")
    assert body["error"].startswith("no step came back for ")
    assert (await server.client.get("/health")).status == 200
    server.fleet.may_answer.set()
    await waiting
    assert (await server.client.get("/livez")).status == 200
