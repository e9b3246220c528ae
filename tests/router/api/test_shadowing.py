"""An alias's requests go to its shadows, too, and nobody notices but the series."""

import asyncio
from typing import Any

import pytest

from penstock.router.api import shadowing
from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.identity import RESUME
from penstock.router.models.aliases import Aliases
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server

ALIASES = {"chat": {"demo": 1.0}, "same": {"demo": 1.0}, "plain": {"demo": 1.0}}
COMPLETION = {"model": "chat", "prompt": "Say it", "max_tokens": 9, "temperature": 0}


@pytest.fixture
async def server(several: Any, demo: ChatTemplate) -> Server:
    """Its alias `chat` has the shadow `other`, and `same` the shadow `demo`, each of all requests."""
    server: Server = await several(Aliases(ALIASES, {"chat": {"other": 1.0}, "same": {"demo": 1.0}}), demo)
    async with server.client.get("/v1/models") as response:
        assert {each["id"]: each.get("shadow") for each in (await response.json())["data"]} == {
            "demo": None, "other": None, "chat": {"other": 1.0}, "same": {"demo": 1.0}, "plain": None}
    await until(lambda: shadows_of(server)._services.take_loaded("other") is not None)  # which no request has asked for
    return server


def shadows_of(server: Server) -> shadowing.Shadows:
    app = server.client.server.app  # type: ignore[attr-defined]
    found: shadowing.Shadows = app[shadowing.SHADOWS]
    return found


async def counted(server: Server) -> dict[str, float]:
    """Returns the series of shadows once none runs."""
    await until(lambda: not shadows_of(server)._running)
    async with server.client.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return {name.removeprefix("penstock_shadow_"): float(value) for name, _, value in (
        line.rpartition(" ") for line in lines if line.startswith("penstock_shadow_")) if "_total" in name}


async def said(server: Server, path: str, **body: object) -> str:
    asked = {name: value for name, value in {**COMPLETION, **body}.items() if value is not None}
    async with server.client.post(path, json=asked) as response:
        assert (response.status, response.headers["penstock-model"]) == (200, "demo")
        return await response.text()


async def test_the_client_gets_its_model_s_answer_and_the_shadow_s_is_counted(server: Server, behind: Server) -> None:
    for stream in (False, True):
        assert "I" in await said(server, "/v1/completions", stream=stream)
    chat = {"prompt": None, "messages": [{"role": "user", "content": "Who?"}]}
    assert "demo" in await said(server, "/v1/chat/completions", **chat)
    async with server.client.post("/models/chat/generate_stream", json={
            "inputs": "Who?", "parameters": {"max_new_tokens": 9, "do_sample": False}}) as response:
        assert "demo" in await response.text()
    num_tokens = len(await behind.tokenizer.encode("I am other.<|im_end|>"))
    assert await counted(server) == {
        'requests_total{model="other",outcome="answered"}': 4.0, 'tokens_total{model="other"}': 4.0 * num_tokens,
        'compared_answers_total{model="other",outcome="different"}': 4.0}
    await behind.until_idle()


async def test_equal_answers_are_counted_where_no_seed_was_drawn(server: Server) -> None:
    await said(server, "/v1/completions", model="same")
    await said(server, "/v1/completions", model="same", temperature=1.0, seed=7)
    await said(server, "/v1/completions", model="same", temperature=1.0)
    found = await counted(server)
    assert found['requests_total{model="demo",outcome="answered"}'] == 3
    assert found['compared_answers_total{model="demo",outcome="equal"}'] == 2


async def test_other_requests_have_no_shadow(server: Server) -> None:
    await said(server, "/v1/completions", model="plain")
    await said(server, "/v1/completions", model="demo")
    async with server.client.post("/v1/completions", json=COMPLETION, headers={RESUME: "x"}) as response:
        assert response.status == 400
    async with server.client.post("/v1/completions", json=[]) as response:
        assert response.status == 400
    assert await counted(server) == {}


async def test_a_shadow_that_fails_is_counted_alone(server: Server, behind: Server) -> None:
    behind.fleet.failure = ValueError("it fails")
    behind.groups.give_up()
    await said(server, "/v1/completions")
    assert (await counted(server))['requests_total{model="other",outcome="failed"}'] == 1


async def test_a_shadow_that_hangs_holds_up_nobody_and_ends_with_its_client(server: Server, behind: Server) -> None:
    behind.fleet.may_answer.clear()
    await said(server, "/v1/completions")  # which is over while the shadow hangs
    server.fleet.may_answer.clear()
    asking = asyncio.create_task(said(server, "/v1/completions"))
    await until(lambda: len(behind.engine._requests) == 2)
    asking.cancel()
    await until(lambda: len(behind.engine._requests) == 1)
    behind.fleet.may_answer.set()
    server.fleet.may_answer.set()
    found = await counted(server)
    assert (found['requests_total{model="other",outcome="left"}'],
            found['requests_total{model="other",outcome="answered"}']) == (1, 1)


async def test_a_shadow_that_has_answered_leaves_its_place_while_its_client_waits(server: Server) -> None:
    server.fleet.may_answer.clear()
    asking = asyncio.create_task(said(server, "/v1/completions"))
    shadows = shadows_of(server)
    await until(lambda: shadows._running)
    await until(lambda: not shadows._asked)
    assert shadows._running
    server.fleet.may_answer.set()
    await asking
    assert (await counted(server))['compared_answers_total{model="other",outcome="different"}'] == 1


async def test_a_shadow_is_dropped_where_permits_are_short_or_many_run(
    server: Server, behind: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = 'requests_total{model="other",outcome="dropped"}'
    async with behind.groups.permit(LIMITS.max_concurrent_requests // 2 + 1):
        await said(server, "/v1/completions")
        assert (await counted(server))[dropped] == 1
    monkeypatch.setattr(shadowing, "MAX_RUNNING", 0)
    await said(server, "/v1/completions")
    assert (await counted(server))[dropped] == 2


async def test_a_shadow_that_is_not_loaded_is_dropped(server: Server) -> None:
    services = shadows_of(server)._services
    while (service := services.take_loaded("other")) is None:
        await asyncio.sleep(0)
    services.give_back(service)
    services.give_back(service)  # which the fixture has taken
    await services.unload("other")
    await said(server, "/v1/completions")
    assert (await counted(server))['requests_total{model="other",outcome="dropped"}'] == 1


async def test_clients_give_an_alias_a_shadow_and_take_it_away(server: Server) -> None:
    changed = {"alias": "plain", "targets": {"demo": 1.0}}
    for body, told in (({**changed, "shadow": {"other": 0.5}}, {"other": 0.5}), (changed, None)):
        async with server.client.post("/v1/alias_model", json=body) as response:
            assert (await response.json()).get("shadow") == told
        async with server.client.get("/v1/models/plain") as response:
            assert (await response.json()).get("shadow") == told
    for shadow in ({"other": 0.0}, {"other": 1.5}, {"none": 0.5}):
        async with server.client.post("/v1/alias_model", json={**changed, "shadow": shadow}) as response:
            assert response.status == 400
