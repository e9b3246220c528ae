"""`deadline_ms` by every API: promised, kept or missed, or refused with the estimate."""

import asyncio
import re
import time
from dataclasses import replace

import pytest

from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.engine import Engine
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO

BODIES: dict[str, dict[str, object]] = {
    "/generate": {"inputs": "One", "parameters": {"max_new_tokens": 2}},
    "/v1/completions": {"prompt": "One", "max_tokens": 2},
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": 2},
    "/v1/responses": {"input": "One", "max_output_tokens": 2},
    "/v1/messages": {"model": "tgi", "messages": HELLO, "max_tokens": 2},
}
OUTCOMES = ("promised", "refused", "kept", "missed")


def with_deadline(url: str, milliseconds: int) -> dict[str, object]:
    body = BODIES[url]
    if url == "/generate":
        return {"inputs": "One", "parameters": {"max_new_tokens": 2, "deadline_ms": milliseconds}}
    return {**body, "deadline_ms": milliseconds}


def outcomes(server: Server) -> dict[str, float]:
    return {each: server.counted("penstock_deadlines_total", outcome=each) for each in OUTCOMES}


def slow_down(engine: Engine, seconds: float) -> None:
    """Has the engine believe that its steps take so long."""
    pace = engine._scheduler.promises.pace
    for _ in range(100):
        for num_tokens in (1, 64):
            pace._cost.observe(num_tokens, seconds)
    pace._num_steps = 100


@pytest.mark.parametrize("url", BODIES)
async def test_a_deadline_is_promised_and_kept(start: Start, demo: ChatTemplate, url: str) -> None:
    server = await start(template=demo)
    response = await server.post(url, with_deadline(url, 60_000))
    assert response.status == 200, await response.text()
    assert outcomes(server) == {"promised": 1, "refused": 0, "kept": 1, "missed": 0}
    assert server.counted("penstock_deadline_early_seconds_count") == 1


@pytest.mark.parametrize(("url", "status"), [
    ("/generate", 422), ("/v1/completions", 400), ("/v1/chat/completions", 400), ("/v1/messages", 400)])
async def test_one_that_is_too_short_even_alone_is_refused_with_the_estimate(
    start: Start, demo: ChatTemplate, url: str, status: int
) -> None:
    server = await start(template=demo)
    slow_down(server.engine, 2.0)
    response = await server.post(url, with_deadline(url, 1500))
    assert response.status == status
    assert re.search(r"`deadline_ms` is too short: the answer would take about \d+\.\d s alone, \d+\.\d s of prompt, "
                     r"2\.5 s of 2 tokens\. Given: 1500", await response.text())
    assert not server.fleet.plans
    assert outcomes(server) == {"promised": 0, "refused": 1, "kept": 0, "missed": 0}
    await server.until_idle()


@pytest.mark.parametrize("url", ["/generate", "/v1/completions"])
async def test_one_for_which_others_leave_no_time_may_come_back(start: Start, url: str) -> None:
    server = await start(replace(LIMITS, max_slots=1))
    server.fleet.may_answer.clear()
    first = asyncio.create_task(server.generate(max_new_tokens=5))
    await server.fleet.has_plan.wait()
    slow_down(server.engine, 0.5)
    response = await server.post(url, with_deadline(url, 2500))
    assert response.status == 429
    said = re.search(r"The answer would take about (\d+\.\d) s: (\d+\.\d) s of waiting behind 1 requests, "
                     r"(\d+\.\d) s of prompt, 0\.6 s of 2 tokens; `deadline_ms` is 2500", await response.text())
    assert said, await response.text()
    assert 1 <= int(response.headers["retry-after"]) <= float(said[1])
    assert outcomes(server)["refused"] == 1
    server.fleet.may_answer.set()
    await first
    await server.until_idle()


async def test_one_that_is_missed_is_answered_all_the_same(server: Server) -> None:
    server.fleet.may_answer.clear()
    answer = asyncio.create_task(server.generate(max_new_tokens=3, deadline_ms=20))
    await server.fleet.has_plan.wait()
    late_at = time.monotonic() + 0.02
    await until(lambda: time.monotonic() > late_at)
    server.fleet.may_answer.set()
    assert (await answer)["generated_text"]
    assert outcomes(server) == {"promised": 1, "refused": 0, "kept": 0, "missed": 1}
    assert server.counted("penstock_deadline_late_seconds_count") == 1


async def test_the_answers_bits_and_name_know_nothing_of_a_deadline(server: Server) -> None:
    names = set()
    for more in ({}, {"deadline_ms": 50_000}):
        response = await server.post("/generate", {"inputs": "One", "parameters": {"max_new_tokens": 2, **more}})
        names.add(response.headers["penstock-answer"].split(".")[0])
    assert len(names) == 1


@pytest.mark.parametrize(("parameters", "rule"), [
    ({"deadline_ms": 0}, "`deadline_ms` must be strictly positive. Given: 0"),
    ({"deadline_ms": 500, "num_beams": 2}, "`deadline_ms` can't be promised with `num_beams`")])
async def test_rules(server: Server, parameters: dict[str, int], rule: str) -> None:
    response = await server.post("/generate", {"inputs": "One", "parameters": {"max_new_tokens": 2, **parameters}})
    assert response.status == 422
    assert rule in (await response.json())["error"]
