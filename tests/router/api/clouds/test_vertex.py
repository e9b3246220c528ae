"""Vertex AI's routes."""

import asyncio
from dataclasses import replace

import pytest

from penstock.router.api.route_table import vertex_routes
from penstock.system.arguments import InvalidArgument
from tests.fakes import LIMITS
from tests.router.api.clouds.conftest import CHAT, TEXT
from tests.router.api.conftest import Server, Start

PREDICT = "/v1/endpoints/1/deployedModels/2:predict"


async def test_predictions(server: Server) -> None:
    response = await server.post("/vertex", {"instances": [
        {"inputs": "Say it"},
        {"inputs": "Say it", "parameters": {"return_full_text": True}},
        {"inputs": "Say it", "parameters": {"max_new_tokens": 1}, "stream": True},
        {"inputs": "Say it", "parameters": {"stop": ["w"]}},
        {"messages": CHAT},
        {"messages": CHAT, "max_tokens": 1, "stream": True},
        {"inputs": "Say it", "parameters": {"best_of": 2, "do_sample": True}},
    ]})
    assert response.status == 200, await response.text()
    first = TEXT[:len((await server.generate(max_new_tokens=1))["generated_text"])]
    assert await response.json() == {
        "predictions": [TEXT, "Say it" + TEXT, first, "Hello w", TEXT, first, TEXT]}
    assert server.series()["tgi_request_count"] == 8
    await server.until_idle()


@pytest.mark.parametrize(("instances", "status", "error"), [
    ([], 422, {"error": "Input validation error", "error_type": "Input validation error"}),
    ([{"inputs": "a"}, {"inputs": "a", "parameters": {"temperature": 0.0}}], 422, {
        "error": "Input validation error: `temperature` must be strictly positive", "error_type": "validation"}),
    ([{"messages": CHAT, "max_tokens": 0}], 422, {
        "error": "Input validation error: `max_new_tokens` must be strictly positive", "error_type": "validation"}),
    ([{"inputs": "a"}] * 129, 429, {"error": "Model is overloaded", "error_type": "overloaded"}),
    ([{"inputs": "a"}] * 20_000, 429, {"error": "Model is overloaded", "error_type": "overloaded"}),
])
async def test_predictions_that_are_refused(
    server: Server, instances: list[object], status: int, error: dict[str, str]
) -> None:
    response = await server.post("/vertex", {"instances": instances})
    assert (response.status, await response.json()) == (status, error)
    await server.until_idle()


@pytest.mark.parametrize(("body", "where"), [
    ({}, "missing field `instances`"), ({"instances": None}, "instances: "), ({"instances": [1]}, "instances[0]"),
    ({"instances": [{"inputs": "a"}, {"x": "a"}]}, "instances[1]")])
async def test_predictions_of_another_shape(server: Server, body: object, where: str) -> None:
    response = await server.post("/vertex", body)
    assert (response.status, where in await response.text()) == (422, True), await response.text()


async def test_predictions_of_which_one_can_not_be_had(start: Start) -> None:
    server = await start(replace(LIMITS, max_concurrent_requests=2))
    server.fleet.may_answer.clear()
    waiting = asyncio.create_task(server.generate())
    await server.fleet.has_plan.wait()
    response = await server.post("/vertex", {"instances": [{"inputs": "a"}] * 2})
    assert response.status == 429
    server.fleet.may_answer.set()
    assert await waiting
    response = await server.post("/vertex", {"instances": [{"inputs": "a"}, {"messages": CHAT}]})
    assert (response.status, (await response.json())["error_type"]) == (422, "template_error")


async def test_paths_of_vertex(start: Start) -> None:
    server = await start(more_routes=vertex_routes(PREDICT, "/alive"))
    response = await server.post(PREDICT, {"instances": [{"inputs": "a"}]})
    assert await response.json() == {"predictions": [TEXT]}
    for path in (PREDICT, f"{PREDICT}/"):
        response = await server.post(path, {"instances": []})
        assert (response.status, await response.json()) == (
            422, {"error": "Input validation error", "error_type": "Input validation error"})
    assert (await server.client.get("/alive")).status == 200
    paths = (await (await server.client.get("/api-doc/openapi.json")).json())["paths"]
    assert {PREDICT, "/alive"} <= set(paths)


@pytest.mark.parametrize(("predict", "health"), [(None, None), ("/vertex", "/health"), ("/vertex", "/ping")])
def test_paths_that_are_there_anyway(predict: str | None, health: str | None) -> None:
    assert vertex_routes(predict, health) == []



@pytest.mark.parametrize(("predict", "health"), [("/generate", None), (None, "/info"), ("/invocations", None)])
def test_paths_of_other_routes(predict: str | None, health: str | None) -> None:
    with pytest.raises(InvalidArgument, match="is a route of the server's own"):
        vertex_routes(predict, health)
