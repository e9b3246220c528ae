"""What keys have used and paid, as the server tells it, and budgets."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiohttp import ClientResponse

from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache.backend import Bounds
from penstock.router.response_cache.cache import ResponseCache
from penstock.router.response_cache.memory import Memory
from penstock.system.arguments import InvalidArgument
from tests.eventually import until
from tests.pooling_fleet import EMBEDDER, WHOLE_LIMITS, PoolingFleet
from tests.router.api.accounts import PRICES, TODAY, TOMORROW, Accounts, accounts
from tests.router.api.conftest import Server, Start

__all__ = ["accounts"]

BUDGETED = {**PRICES, "budgets": [{"key": "key-2", "tokens": 20}, {"key": "key-3", "money": "0.0001"}]}
KEYS = Access(Keys(["one", "two", "three"]), Keys(["state"]))


def bearing(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


async def ask(server: Server, key: str = "", **parameters: object) -> ClientResponse:
    body = {"inputs": "Say it", "parameters": {"max_new_tokens": 6, **parameters}, "receipt": True}
    response: ClientResponse = await server.client.post("/generate", json=body, headers=bearing(key))
    return response


async def usage(server: Server, key: str = "", query: str = "") -> dict[str, Any]:
    response = await server.client.get(f"/v1/usage{query}", headers=bearing(key))
    told: dict[str, Any] = await response.json()
    assert response.status == 200, told
    return told


async def test_totals_are_the_sums_of_receipts(start: Start, accounts: Accounts) -> None:
    server = await start(make_around=accounts.around())
    tokens: Counter[str] = Counter()
    step_us = kv_token_ms = 0
    for _ in range(3):
        receipt = (await (await ask(server)).json())["receipt"]
        tokens.update(receipt["tokens"])
        step_us += receipt["step_us"]
        kv_token_ms += receipt["kv_token_ms"]
    [told] = (await usage(server))["data"]
    cost = float(told.pop("cost"))
    assert told == {
        "object": "usage", "day": TODAY, "key": "", "model": "demo", "requests": 3, "currency": "USD",
        "tokens": {**tokens, "kept": 0}, "step_us": step_us, "kv_token_ms": kv_token_ms}
    assert cost == pytest.approx(
        (2 * tokens["computed"] + 0.25 * tokens["cached"] + 8.5 * tokens["output"] + 0.001 * step_us) / 1e6 + 3e-6,
        abs=2e-9)
    labels = 'key="",model="demo"'
    series = server.series()
    assert series[f"penstock_usage_requests_total{{{labels}}}"] == 3
    assert series[f'penstock_usage_tokens_total{{{labels},kind="output"}}'] == tokens["output"]
    assert series[f'penstock_usage_cost_total{{{labels},currency="USD"}}'] == pytest.approx(cost)


async def test_each_key_sees_its_own_and_those_of_the_state_all(start: Start, accounts: Accounts) -> None:
    server = await start(access=KEYS, make_around=accounts.around())
    for key in ("one", "two", "two"):
        assert (await ask(server, key)).status == 200
    counts = {key: [(row["key"], row["requests"]) for row in (await usage(server, key))["data"]]
              for key in ("one", "two", "three", "state")}
    assert counts == {"one": [("key-1", 1)], "two": [("key-2", 2)], "three": [],
                      "state": [("key-1", 1), ("key-2", 2)]}
    assert len((await usage(server, "state", "?key=key-2"))["data"]) == 1
    for key, query, status in (("one", "?key=key-2", 400), ("", "", 401), ("other", "", 401)):
        assert (await server.client.get(f"/v1/usage{query}", headers=bearing(key))).status == status


async def test_without_keys_the_state_is_for_those_who_have_its_key(start: Start, accounts: Accounts) -> None:
    server = await start(access=Access(metrics_keys=Keys(["state"])), make_around=accounts.around())
    assert (await server.client.get("/v1/usage")).status == 401
    await ask(server)
    assert [row["key"] for row in (await usage(server, "state"))["data"]] == [""]


@pytest.mark.parametrize(("query", "sentence"), [
    ("?from=yesterday", "`from` must be a day such as 2026-11-29. Given: yesterday"),
    ("?to=20261129", "`to` must be a day such as 2026-11-29. Given: 20261129"),
    ("?from=2025-11-30", "`from` must be at most 365 days before `to`, and not behind it. Given: 2025-11-30 and "
                         "2025-11-29"),
    ("?key=a", "`key` must be the name of the client's own key, for only those who have a key for the server's state "
               "see others. Given: a"),
    ("?day=1", "the parameters must be of from, to, key. Given: day")])
async def test_wrong_parameters(start: Start, accounts: Accounts, query: str, sentence: str) -> None:
    server = await start(make_around=accounts.around())
    response = await server.client.get(f"/v1/usage{query}")
    assert response.status == 400
    assert (await response.json())["error"]["message"] == sentence


async def test_a_server_without_prices_says_so(server: Server) -> None:
    response = await server.client.get("/v1/usage")
    assert response.status == 501
    assert (await response.json())["error"]["message"] == "this server keeps no accounts: that takes --prices"


async def test_a_budget_refuses_until_midnight(start: Start, accounts: Accounts) -> None:
    """Whoever crosses it gets a whole answer."""
    accounts.set(**BUDGETED)
    server = await start(access=KEYS, make_around=accounts.around())
    accounts.now += 0.5
    for key in ("two", "two", "two", "three", "three"):
        answer = await (await ask(server, key)).json()
        assert answer["receipt"]["tokens"]["output"] == 6
    refusals = []
    for key in ("two", "three"):
        refused = await ask(server, key)
        assert (refused.status, refused.headers["retry-after"]) == (429, "43200")
        refusals.append((await refused.json())["error"])
    assert refusals[0] == (
        f"the budget of the key `key-2` for {TODAY} is spent: 27 of 20 tokens. It opens again at {TOMORROW}T00:00:00Z")
    assert "of 0.0001 USD" in refusals[1]
    chat = await server.client.post("/v1/completions", json={"prompt": "a"}, headers=bearing("two"))
    assert (chat.status, (await chat.json())["error"]["code"]) == (429, "insufficient_quota")
    stream = await server.client.post("/generate_stream", json={"inputs": "a"}, headers=bearing("two"))
    assert stream.status == 429
    assert (await ask(server, "one")).status == 200
    assert server.series()['penstock_budget_refusals_total{key="key-2"}'] == 3
    budget = (await usage(server, "two"))["budget"]
    assert budget == {
        "key": "key-2", "tokens": 20, "spent_tokens": 27, "money": None, "spent_money": budget["spent_money"],
        "currency": "USD", "opens_at": f"{TOMORROW}T00:00:00Z"}
    accounts.now += 43199.4
    assert (await ask(server, "two")).status == 429
    accounts.now += 0.1
    assert (await ask(server, "two")).status == 200
    assert [row["day"] for row in (await usage(server, "two", f"?from={TODAY}"))["data"]] == [TODAY, TOMORROW]


async def test_servers_of_one_database_know_what_is_spent_at_the_others(start: Start, accounts: Accounts) -> None:
    accounts.set(**PRICES, budgets=[{"tokens": 10}])
    first, second = [await start(make_around=accounts.around()) for _ in range(2)]
    for server in (first, second):
        assert (await ask(server)).status == 200
        assert (await usage(server))["data"][0]["requests"] == 1 + (server is second)
    assert (await ask(second)).status == 429
    await usage(first)
    assert (await ask(first)).status == 429


async def test_a_request_that_has_begun_is_not_cut_and_one_whose_client_leaves_is_counted(
    start: Start, accounts: Accounts
) -> None:
    accounts.set(**PRICES, budgets=[{"tokens": 1}])
    server = await start(make_around=accounts.around())
    server.fleet.may_answer.clear()
    running = [asyncio.create_task(ask(server)) for _ in range(2)]
    await until(lambda: server.engine._requests.number == 2)
    server.fleet.may_answer.set()
    assert [(await each).status for each in running] == [200, 200]
    assert (await ask(server)).status == 429
    assert (await usage(server))["data"][0]["requests"] == 2


async def test_answers_that_were_kept_are_counted_by_themselves(start: Start, accounts: Accounts) -> None:
    def cache(metrics: Metrics) -> ResponseCache:
        bounds = Bounds(1 << 20, 60.0)
        return ResponseCache(Memory(bounds, metrics.cache), bounds, metrics.cache, is_shared=True)

    server = await start(make_around=accounts.around(cache=cache))
    await ask(server)
    [before] = (await usage(server))["data"]
    kept = await (await ask(server)).json()
    [after] = (await usage(server))["data"]
    assert after["tokens"] == {**before["tokens"], "kept": kept["receipt"]["tokens"]["input"] + 6}
    assert float(after["cost"]) - float(before["cost"]) == pytest.approx(1e-6)


async def test_beams_and_several_answers(start: Start, accounts: Accounts) -> None:
    server = await start(make_around=accounts.around())
    body = {"inputs": "Say it", "receipt": True, "parameters": {
        "num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4, "details": True}}
    response = await server.post("/generate", body)
    assert response.status == 200, await response.text()
    receipt = (await response.json())["receipt"]
    body = {"prompt": ["a", "b b"], "n": 2, "max_tokens": 3, "receipt": True}
    other = (await (await server.post("/v1/completions", body)).json())["receipt"]
    [told] = (await usage(server))["data"]
    assert told["tokens"] == {**(Counter(receipt["tokens"]) + Counter(other["tokens"])), **{
        kind: 0 for kind, number in receipt["tokens"].items() if number + other["tokens"][kind] == 0}, "kept": 0}


async def test_vectors(start: Start, accounts: Accounts) -> None:
    server = await start(
        make_fleet=lambda _: PoolingFleet(), facts=EMBEDDER, limits=WHOLE_LIMITS, make_around=accounts.around())
    assert (await server.post("/embed", {"inputs": ["one", "two"]})).status == 200
    [told] = (await usage(server))["data"]
    assert told["requests"] == 1
    assert told["tokens"]["input"] == told["tokens"]["computed"] > 0


async def test_prices_are_read_again(start: Start, accounts: Accounts, caplog: pytest.LogCaptureFixture) -> None:
    """Those of a wrong file change nothing."""
    server = await start(make_around=accounts.around())
    [accounting] = accounts.opened
    accounts.set(currency="EUR", prices=[{"key": "a", "model": "b", "per_request": 1}, {"per_request": 5}])
    assert accounting.reload() == "there are 2 prices and 0 budgets now"
    accounting.tell_unknown(["key-1"], ["demo"])
    assert caplog.messages == ["`prices` names the key a, which this server does not have",
                               "`prices` names the model b, which this server does not have"]
    await ask(server)
    accounts.set(currency="EUR", prices=[{"per_request": -5}])
    with pytest.raises(InvalidArgument, match=r"`prices.0.per_request` must be greater than or equal to 0\. Given: -5"):
        accounting.reload()
    await ask(server)
    [told] = (await usage(server))["data"]
    assert (told["cost"], told["currency"]) == ("10", "EUR")
