"""What accounts count of requests whose answers were made anew, shared, or never begun."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from penstock.router.checks.checker import Checker
from penstock.router.checks.config import ChecksFile
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache.backend import Bounds
from penstock.router.response_cache.cache import ResponseCache
from penstock.router.response_cache.memory import Memory
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.accounts import Accounts, accounts
from tests.router.api.conftest import Start
from tests.router.api.resuming import SeededFleet
from tests.router.api.test_accounting import ask, usage

__all__ = ["accounts"]


async def test_answers_that_are_made_anew_are_counted_with_those_before(
    start: Start, accounts: Accounts, tmp_path: Path
) -> None:
    """The receipt tells of the last one, and of the cost of all."""
    file = tmp_path / "checks.yaml"
    check = {"name": "pattern", "kind": "regex", "must_not_match": ["^Hello"]}
    file.write_text(yaml.safe_dump({"checks": [check], "retries": 5}))
    server = await start(make_fleet=SeededFleet, make_around=accounts.around(
        checker=lambda metrics: Checker(ChecksFile.read(file), tmp_path, metrics.checks)))
    response = await ask(server, do_sample=True, seed=5)
    receipt = (await response.json())["receipt"]
    assert response.status == 200
    num_tries = len(server.fleet.initial_states)
    assert num_tries > 1
    [answer] = receipt["answers"]
    assert (answer["tokens"], receipt["tokens"]["output"]) == (6, 6 * num_tries)
    [told] = (await usage(server))["data"]
    assert told["tokens"] == {**receipt["tokens"], "kept": 0}
    assert told["step_us"] == receipt["step_us"]


async def test_whoever_shares_an_answer_pays_for_it_once_the_first_has_left(start: Start, accounts: Accounts) -> None:
    def cache(metrics: Metrics) -> ResponseCache:
        bounds = Bounds(1 << 20, 60.0)
        return ResponseCache(Memory(bounds, metrics.cache), bounds, metrics.cache, is_shared=True)

    server = await start(make_around=accounts.around(cache=cache))
    server.fleet.may_answer.clear()
    first = asyncio.create_task(ask(server))
    await until(lambda: server.engine._requests.number == 1)
    flight: Any = next(iter(server.engine._requests.values())).receiver
    second = asyncio.create_task(ask(server))
    await until(lambda: len(flight._receivers) == 2)
    first.cancel()
    await until(lambda: len(flight._receivers) == 1)
    server.fleet.may_answer.set()
    receipt = (await (await second).json())["receipt"]
    [told] = (await usage(server))["data"]
    assert told["tokens"]["output"] == receipt["tokens"]["output"] == 6
    assert told["tokens"]["kept"] == 0
    assert told["step_us"] == receipt["step_us"] > 0


async def test_requests_of_which_no_answer_has_begun_are_not_counted(start: Start, accounts: Accounts) -> None:
    """Those that waited behind another when their clients left, or the groups were given up."""
    server = await start(replace(LIMITS, max_slots=1), make_around=accounts.around())
    server.fleet.may_answer.clear()
    first = asyncio.create_task(ask(server))
    await server.fleet.has_plan.wait()
    left, failed = [asyncio.create_task(ask(server)) for _ in range(2)]
    await until(lambda: server.engine._requests.number == 3)
    left.cancel()
    await until(lambda: server.engine._requests.number == 2)
    server.engine.give_up()
    assert [(await each).status for each in (first, failed)] == [503, 503]
    assert [told["requests"] for told in (await usage(server))["data"]] == [1]
