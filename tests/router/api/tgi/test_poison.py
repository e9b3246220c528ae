"""A request that kills its group whenever it runs ends with 424, and is not run again when it is sent again."""

from dataclasses import replace
from typing import NoReturn

from penstock.contract.row import Row
from penstock.router.fleet.errors import FleetError
from tests.fakes import LIMITS, ScriptedFleet
from tests.router.api.conftest import Server, Start

BODY = {"inputs": "a", "parameters": {"max_new_tokens": 2}}


def die(row: Row) -> NoReturn:
    raise FleetError("a shard died")


async def kill(start: Start, seconds: float) -> Server:
    """A server that has given the request up, and whose shards are mended now."""
    server = await start(replace(LIMITS, poison_memory=seconds), make_fleet=lambda script: ScriptedFleet(die))
    response = await server.post("/generate", BODY)
    assert response.status == 424
    assert (await response.json()) == {
        "error": "Request failed during generation: Server error: 3 times in a row the shards died while they ran this "
                 "request alone", "error_type": "generation"}
    assert len(server.fleet.plans) >= 3
    server.fleet.answer = lambda row: 300
    return server


async def test_it_is_refused_without_a_step(start: Start) -> None:
    server = await kill(start, 600)
    num_plans = len(server.fleet.plans)
    for path, body in (("/generate", BODY), ("/", BODY), ("/generate_stream", BODY)):
        response = await server.post(path, body)
        assert "so it is refused for 600 s after that" in await response.text()
    assert len(server.fleet.plans) == num_plans
    assert server.series()['tgi_request_failure{err="generation"}'] == 4
    assert (await server.post("/generate", {"inputs": "b"})).status == 200
    await server.until_idle()


async def test_without_a_memory_it_runs_again(start: Start) -> None:
    server = await kill(start, 0)
    assert (await server.post("/generate", BODY)).status == 200
