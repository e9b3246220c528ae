"""Who asks to come earlier or later, by `priority` or `service_tier`; the scheduler's tests see that it is so."""

from dataclasses import replace

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, chunks, refusal

BODIES = {"/v1/completions": {"prompt": "One", "max_tokens": 2}, "/v1/chat/completions": {
    "messages": HELLO, "max_tokens": 2}}
ALLOWED = replace(LIMITS, allow_priorities=True)


async def asked(server: Server, url: str, monkeypatch: pytest.MonkeyPatch, **fields: object) -> tuple[int, object]:
    """The priority of the request that the engine gets, and the tier that the answer names."""
    seen: list[int] = []
    take = server.engine.take
    monkeypatch.setattr(server.engine, "take", lambda transfer: (
        seen.append(transfer.receiver.request.priority), take(transfer)))
    response = await server.post(url, {**BODIES[url], **fields})
    monkeypatch.setattr(server.engine, "take", take)
    content = await response.json()
    assert response.status == 200, content
    return seen[0], content.get("service_tier", "none")


@pytest.mark.parametrize("url", BODIES)
@pytest.mark.parametrize(("fields", "priority", "tier"), [
    ({}, 0, "none"), ({"service_tier": None, "priority": None}, 0, "none"), ({"priority": 100}, 100, "none"),
    ({"service_tier": "auto"}, 0, "default"), ({"service_tier": "default", "priority": 3}, 3, "default"),
    ({"service_tier": "flex"}, 16, "flex"), ({"service_tier": "priority"}, 0, "default"),
    ({"service_tier": "scale"}, 0, "default"), ({"service_tier": "fast", "priority": 1}, 1, "default"),
])
async def test_without_leave_one_can_only_come_later(
    start: Start, demo: ChatTemplate, monkeypatch: pytest.MonkeyPatch, url: str, fields: dict[str, object],
    priority: int, tier: str,
) -> None:
    assert await asked(await start(template=demo), url, monkeypatch, **fields) == (priority, tier)


@pytest.mark.parametrize(("fields", "priority", "tier"), [
    ({"priority": -100}, -100, "none"), ({"service_tier": "priority"}, -16, "priority"),
    ({"service_tier": "fast"}, -16, "priority"), ({"service_tier": "scale"}, 0, "default"),
    ({"service_tier": "flex"}, 16, "flex"),
])
async def test_with_leave_one_can_come_earlier(
    start: Start, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], priority: int, tier: str
) -> None:
    assert await asked(await start(ALLOWED), "/v1/completions", monkeypatch, **fields) == (priority, tier)


@pytest.mark.parametrize("url", BODIES)
@pytest.mark.parametrize(("fields", "rule", "code"), [
    ({"priority": -1}, "`priority` must be >= 0, for this server lets no client come before others: it was started "
     "without --allow-priorities. Given: -1", "integer_below_min_value"),
    ({"priority": -101}, "`priority` must be >= -100 and <= 100. Given: -101", "integer_below_min_value"),
    ({"priority": 101}, "`priority` must be >= -100 and <= 100. Given: 101", "integer_above_max_value"),
    ({"priority": 1, "service_tier": "flex"}, "`service_tier` and `priority` can't be given together, unless the first "
     "is default. Given: flex and 1", "invalid_value"),
])
async def test_a_rule(
    start: Start, demo: ChatTemplate, url: str, fields: dict[str, object], rule: str, code: str
) -> None:
    server = await start(template=demo)
    for is_stream in (False, True):
        response = await server.post(url, {**BODIES[url], "stream": is_stream, **fields})
        param = "service_tier" if "service_tier" in fields else "priority"
        assert (response.status, await response.json()) == (400, refusal(rule, param, code))


@pytest.mark.parametrize("tier", ["standard_only", "", 5])
async def test_an_unknown_tier(server: Server, tier: object) -> None:
    response = await server.post("/v1/completions", {**BODIES["/v1/completions"], "service_tier": tier})
    content = await response.json()
    assert (response.status, content["error"]["param"]) == (400, "service_tier")
    assert "'auto', 'default', 'flex', 'scale', 'priority' or 'fast'" in content["error"]["message"]


async def test_each_chunk_names_the_tier(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    assert {chunk["service_tier"] for chunk in await chunks(server, service_tier="flex", max_tokens=2)} == {"flex"}


async def test_the_answer_is_the_same_one_whatever_its_turn(server: Server) -> None:
    body = {**BODIES["/v1/completions"], "seed": 5, "temperature": 1.0}
    ids = [(await (await server.post("/v1/completions", {**body, **fields})).json())["id"]
           for fields in ({}, {"priority": 5}, {"service_tier": "flex"})]
    assert len({*ids}) == 1


async def test_tgis_routes_have_it_among_the_parameters(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server, seen = await start(), []
    take = server.engine.take
    monkeypatch.setattr(server.engine, "take", lambda transfer: (
        seen.append(transfer.receiver.request.priority), take(transfer)))
    await server.generate(priority=7, max_new_tokens=2)
    assert seen == [7]
    response = await server.post("/generate", {"inputs": "One", "parameters": {"priority": -7}})
    assert response.status == 422
    assert "`priority` must be >= 0" in (await response.json())["error"]
