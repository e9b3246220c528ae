"""The accounts of a real server: totals are the sums of receipts, over processes and their restarts; prices are read
again, and budgets refuse."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.e2e.client import many_clients
from tests.e2e.server import Server, serve

KEYS = {"secret-a": "team-a", "secret-b": "team-b"}
OTHER = "secret-c"
"""The key of a client that asks for no receipts, and just before the server ends."""
PRICES: dict[str, Any] = {"currency": "USD", "prices": [
    {"key": "team-a", "per_million_tokens": {"input": 1, "output": "2.5"}},
    {"per_million_tokens": {"computed": 4, "cached": "0.5"}, "per_request": "0.001"}]}


def bearing(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def answered(session: aiohttp.ClientSession, server: Server, key: str, number: int) -> dict[str, Any]:
    """The receipt of one answer, which came by one of several routes."""
    asks: list[tuple[str, dict[str, Any]]] = [
        ("/generate", {"inputs": f"def f{number % 5}(", "parameters": {"max_new_tokens": 5 + number}}),
        ("/v1/completions", {"prompt": [f"def f{number % 5}(", "x"], "n": 2, "max_tokens": 7}),
        ("/generate", {"inputs": "a = [" * 20, "parameters": {"max_new_tokens": 9, "do_sample": True}}),
    ]
    path, body = asks[number % 3]
    async with session.post(f"{server.url}{path}", json={**body, "receipt": True}, headers=bearing(key)) as response:
        answer = await response.json()
    assert response.status == 200, answer
    receipt: dict[str, Any] = answer["receipt"]
    return receipt


async def completed(session: aiohttp.ClientSession, server: Server) -> Counter[str]:
    """The tokens of an answer, as it tells of them."""
    body = {"prompt": "def f(", "max_tokens": 20}
    async with session.post(f"{server.url}/v1/completions", json=body, headers=bearing(OTHER)) as response:
        told = (await response.json())["usage"]
    return Counter(input=told["prompt_tokens"], output=told["completion_tokens"])


async def usage(session: aiohttp.ClientSession, server: Server, key: str) -> dict[str, Any]:
    """The totals of today, and those of the day before, since it may be midnight."""
    today = datetime.now(UTC).date()
    query = f"from={today - timedelta(1)}&to={today}"
    async with session.get(f"{server.url}/v1/usage?{query}", headers=bearing(key)) as response:
        told: dict[str, Any] = await response.json()
    return told


async def until_told(session: aiohttp.ClientSession, server: Server, key: str, number: int) -> dict[str, Any]:
    """The row of a key once both processes have stored all of its requests."""
    async with asyncio.timeout(30):
        while True:
            rows = (await usage(session, server, key))["data"]
            if sum(row["requests"] for row in rows) == number:
                return added(rows)
            await asyncio.sleep(0.1)


async def until_refused(
    session: aiohttp.ClientSession, server: Server, key: str
) -> tuple[int, Mapping[str, str], bytes]:
    """The first answer that is none, once a process has read the prices again."""
    body = {"inputs": "a", "parameters": {"max_new_tokens": 2}}
    async with asyncio.timeout(30):
        while True:
            async with session.post(f"{server.url}/generate", json=body, headers=bearing(key)) as response:
                if response.status != 200:
                    return response.status, response.headers, await response.read()
            await asyncio.sleep(0.05)


def added(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of the totals of one or two days."""
    tokens: Counter[str] = Counter()
    for row in rows:
        tokens.update(row["tokens"])
    return {"tokens": {**tokens}, "cost": str(sum(Decimal(row["cost"]) for row in rows)),
            **{name: sum(row[name] for row in rows) for name in ("requests", "step_us", "kv_token_ms")}}


def summed(receipts: list[dict[str, Any]]) -> dict[str, Any]:
    tokens: Counter[str] = Counter()
    for receipt in receipts:
        tokens.update(receipt["tokens"])
    return {"requests": len(receipts), "tokens": {**tokens, "kept": 0},
            **{name: sum(receipt[name] for receipt in receipts) for name in ("step_us", "kv_token_ms")}}


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_totals_are_the_sums_of_receipts(tmp_path: Path) -> None:
    """Of two processes that answer clients, before and after a restart of the server."""
    keys, prices = tmp_path / "keys", tmp_path / "prices.yaml"
    keys.write_text("".join(f"# name: {name}\n{key}\n" for key, name in KEYS.items()) + OTHER)
    prices.write_text(yaml.safe_dump(PRICES))
    flags = ("--api-workers", "2", "--speculate", "2", "--api-key-file", str(keys), "--metrics-key", "state",
             "--data-dir", str(tmp_path / "data"), "--prices", str(prices))
    receipts: dict[str, list[dict[str, Any]]] = {key: [] for key in KEYS}
    plain: list[Counter[str]] = []
    for _ in range(2):
        with serve(tmp_path, *flags) as server:
            async with many_clients() as session:
                for key, found in receipts.items():
                    found += await asyncio.gather(*(answered(session, server, key, number) for number in range(15)))
                plain += await asyncio.gather(*(completed(session, server) for _ in range(8)))
            assert server.terminate() == 0
    with serve(tmp_path, *flags) as server:
        async with many_clients() as session:
            for key, found in receipts.items():
                row = await until_told(session, server, key, len(found))
                expected = summed(found)
                assert {name: row[name] for name in expected} == expected
                tokens = expected["tokens"]
                nanos = (1000 * tokens["input"] + 2500 * tokens["output"] if key == "secret-a" else
                         4000 * tokens["computed"] + 500 * tokens["cached"] + 10**6 * len(found))
                assert Decimal(row["cost"]) * 10**9 == nanos
            told = (await until_told(session, server, OTHER, len(plain)))["tokens"]
            assert {name: told[name] for name in ("input", "output")} == sum(plain, Counter())
            rows = (await usage(session, server, "state"))["data"]
            assert {row["key"] for row in rows} == {*KEYS.values(), "file-3"}
            prices.write_text(yaml.safe_dump({**PRICES, "budgets": [{"key": "team-b", "tokens": 10}]}))
            server.process.send_signal(signal.SIGHUP)
            status, headers, content = await until_refused(session, server, "secret-b")
            assert status == 429
            assert "of 10 tokens. It opens again at " in json.loads(content)["error"]
            assert 0 < int(headers["retry-after"]) <= 86400
            assert "SIGHUP: there are 2 prices and 1 budgets now" in server.log.read_text()
            await answered(session, server, "secret-a", 0)
        assert "Traceback" not in server.log.read_text()
