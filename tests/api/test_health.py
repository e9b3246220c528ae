"""What load balancers and Kubernetes ask."""

import asyncio

import pytest

from router.fleet.errors import FleetError
from tests.api.conftest import Server, until


@pytest.mark.parametrize("path", ["/", "/health"])
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
