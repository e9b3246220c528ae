"""Answers that are checked before clients get them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from penstock.router.chat.template import ChatTemplate
from penstock.router.checks.checker import Checker
from penstock.router.checks.config import ChecksFile
from penstock.router.generation.around import Around
from penstock.router.generation.output_gate import retry_seed
from penstock.router.metrics.metrics import Metrics
from penstock.system.arguments import InvalidArgument
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO
from tests.router.api.resuming import SeededFleet

SEED = 3
StartChecked = Callable[..., Awaitable[Server]]
SAMPLED: dict[str, Any] = {
    "inputs": "a", "parameters": {"max_new_tokens": 6, "do_sample": True, "seed": SEED, "details": True}}
GREEDY = {"inputs": "a", "parameters": {"max_new_tokens": 6}}


@pytest.fixture
def start_checked(start: Start, tmp_path: Path) -> StartChecked:
    """Starts a server whose answers must not match a pattern, or must pass other checks."""
    async def start_checked(*checks: dict[str, Any], make_fleet: Any = SeededFleet, **more: Any) -> Server:
        file = tmp_path / "checks.yaml"
        settings: dict[str, Any] = {"checks": [*checks], **{
            name: more.pop(name) for name in ("retries", "seconds", "memory") if name in more}}
        file.write_text(yaml.safe_dump(settings))

        def around(metrics: Metrics) -> Around:
            return Around(checker=Checker(ChecksFile.read(file), tmp_path, metrics.checks))

        return await start(make_fleet=make_fleet, make_around=around, **more)

    return start_checked


def not_matching(pattern: str) -> dict[str, Any]:
    return {"name": "pattern", "kind": "regex", "must_not_match": [pattern]}


def counts(server: Server) -> list[float]:
    """How many answers have passed, failed and not been checked, and how many were made anew."""
    series = server.series()
    return [*(series[f'penstock_checked_answers_total{{outcome="{outcome}"}}']
              for outcome in ("passed", "failed", "broken")), series["penstock_output_retries_total"]]


async def test_an_answer_that_passes_is_as_it_was(start: Start, start_checked: StartChecked) -> None:
    bare, server = await start(make_fleet=SeededFleet), await start_checked(not_matching("absent"))
    for path in ("/generate", "/generate_stream"):
        first, second = [await (await each.post(path, SAMPLED)).read() for each in (bare, server)]
        assert first == second
    assert counts(server) == [2, 0, 0, 0]


async def test_an_answer_that_fails_is_refused_with_the_finding(start_checked: StartChecked) -> None:
    server = await start_checked(not_matching("Hel+o"), retries=3)
    response = await server.post("/generate", GREEDY)
    assert response.status == 422
    assert await response.json() == {
        "error": "the answer has not passed the check `pattern`: it must not match Hel+o", "error_type": "output_check"}
    assert counts(server) == [0, 1, 0, 0]  # another seed would make the same
    assert server.series()['penstock_output_findings_total{check="pattern"}'] == 1
    await server.until_idle()


async def test_no_token_of_a_refused_stream_is_sent(start_checked: StartChecked, demo: ChatTemplate) -> None:
    server = await start_checked(not_matching("Hel+o"), template=demo)
    text = await (await server.post("/generate_stream", GREEDY)).text()
    assert text.count("data:") == 1
    assert "output_check" in text
    chat = {"messages": HELLO, "temperature": 0, "max_tokens": 6, "stream": True}
    text = await (await server.post("/v1/chat/completions", chat)).text()
    assert "output_check_failed" in text
    assert "Hel" not in text.replace("Hel+o", "")
    await server.until_idle()


async def test_a_sampled_answer_is_made_anew_by_another_seed(start_checked: StartChecked) -> None:
    server = await start_checked(not_matching("^Hello"), retries=5)
    first = None
    for path in ("/generate", "/generate_stream"):
        response = await server.post(path, {**SAMPLED, "parameters": {**SAMPLED["parameters"], "seed": 5}})
        assert response.status == 200
        text = await response.text()
        states = [state.sampling.seed for state in server.fleet.initial_states]
        server.fleet.plans.clear()
        seeds = [5, *(retry_seed(5, number) for number in range(1, len(states)))]
        assert states == seeds
        assert len(states) > 1
        assert f'"seed":{states[-1]}' in text
        assert first in (None, states)
        first = states
    assert counts(server) == [2, 2 * (len(first or []) - 1), 0, 2 * (len(first or []) - 1)]
    await server.until_idle()


async def test_retries_have_a_bound(start_checked: StartChecked) -> None:
    server = await start_checked(not_matching("^"), retries=2)
    assert (await server.post("/generate", SAMPLED)).status == 422
    assert counts(server) == [0, 3, 0, 2]


async def test_each_of_several_answers_is_checked(start_checked: StartChecked) -> None:
    server = await start_checked(not_matching("absent"))
    response = await server.post("/v1/completions", {"prompt": ["a", "b"], "n": 2, "max_tokens": 4, "seed": 1})
    assert len((await response.json())["choices"]) == 4
    beams = {"inputs": "a", "parameters": {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4,
                                           "details": True}}
    assert (await server.post("/generate", beams)).status == 200
    assert counts(server) == [6, 0, 0, 0]


OWN = """
import time


def check(text, facts):
    print("prints are of no harm")
    if facts["prompt"] == "slow":
        time.sleep(60)
    if facts["prompt"] == "large":
        return str(len(bytearray(1 << 40)))
    if facts["prompt"] == "dies":
        import os
        os._exit(3)
    if facts["prompt"] == "fails":
        raise KeyError("made up")
    return None if facts["finish_reason"] == "length" else "it must be long"
"""


async def test_a_function_has_time_and_memory_of_its_own(start_checked: StartChecked, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    server = await start_checked({"name": "own", "kind": "python", "file": "own.py"}, seconds=1.0, memory=1 << 28)
    said = {}
    for prompt in ("fine", "slow", "fine", "large", "dies", "fine", "fails", "fine"):
        response = await server.post("/generate", {"inputs": prompt, "parameters": {"max_new_tokens": 4}})
        body = await response.json()
        said[prompt] = body["error"] if response.status == 422 else response.status
    assert said == {
        "fine": 200,
        "slow": "the answer has not passed its checks: it could not be run: the checks took more than 1 s",
        "large": "the answer has not passed the check `own`: it could not be run: MemoryError",
        "dies": "the answer has not passed its checks: it could not be run: the process of the checks has ended with "
                "status 3",
        "fails": "the answer has not passed the check `own`: it could not be run: KeyError: 'made up'"}
    assert counts(server) == [4, 0, 4, 0]


async def test_a_client_that_leaves_amid_a_check(start_checked: StartChecked, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    server = await start_checked({"name": "own", "kind": "python", "file": "own.py"}, seconds=30.0)
    slow = asyncio.create_task(server.post("/generate", {"inputs": "slow", "parameters": {"max_new_tokens": 4}}))
    await until(lambda: server.fleet.plans and not server.engine._requests)
    slow.cancel()
    await server.until_idle()
    response = await server.post("/generate", {"inputs": "fine", "parameters": {"max_new_tokens": 4}})
    assert response.status == 200


async def test_a_file_is_tried_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "checks.yaml"
    file.write_text("checks: [{name: a, kind: regex, must_match: ['(']}]")
    with pytest.raises(InvalidArgument, match=r"^`output_checks`: `a`: "):
        await Checker.opened(file, Metrics(LIMITS).checks)
    file.write_text("checks: [{name: a, kind: regex}]")
    await (await Checker.opened(file, Metrics(LIMITS).checks)).close()
