"""Lines of a batch whose engine fails, or is away for a while."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.offline import batch_run
from penstock.offline.batch_files import AnswerFile, NotAnswers
from penstock.offline.batch_run import Batch
from penstock.offline.failures import NoShards
from penstock.offline.session import Session
from penstock.router.batches import answers
from penstock.router.batches.answers import LineAnswer
from penstock.router.batches.lines import Line
from penstock.router.errors import Unhealthy
from penstock.router.generation.services import Services
from tests.fakes import LIMITS

LINE = Line(1, "a", "/v1/completions", {"prompt": "One"})
ANSWER = LineAnswer("a", 200, "req", {})
FAILURE = LineAnswer("a", 424, "req", {"error": {"message": "Server error"}})


async def answered(monkeypatch: pytest.MonkeyPatch, found: list[Any], is_healthy: bool, fails: bool) -> LineAnswer:
    """The answer to a line of a service that finds these one after the other, and then has failed, if it `fails`."""
    session = SimpleNamespace(failure=None)
    services = SimpleNamespace(first=SimpleNamespace(engine=SimpleNamespace(is_healthy=is_healthy)))

    async def answer(services: Services, line: Line) -> LineAnswer:
        result = found.pop(0)
        if not found and fails:
            session.failure = NoShards("the engine failed")
        if isinstance(result, Exception):
            raise result
        return cast(LineAnswer, result)

    monkeypatch.setattr(answers, "answer_line", answer)
    monkeypatch.setattr(answers, "RETRY_SECONDS", 0.0)
    return await batch_run._answered(cast(Session, session), cast(Services, services), LINE)


async def test_lines_are_asked_until_the_group_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answered(monkeypatch, [Unhealthy(), Unhealthy(), ANSWER], True, False) is ANSWER


async def test_a_failure_of_the_line_alone_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answered(monkeypatch, [FAILURE], True, False) is FAILURE


async def test_a_failure_of_the_engine_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoShards, match="the engine failed"):
        await answered(monkeypatch, [FAILURE, Unhealthy()], False, True)


async def test_a_failure_that_is_remembered_leaves_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []

    async def others() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    with pytest.raises(NoShards, match="the engine failed"):
        await answered(monkeypatch, [FAILURE] * 5, False, True)
    beside.cancel()
    assert len(turns) >= 4


async def left(folder: Path, lines: list[dict[str, Any] | str], model: str = "m") -> int:
    """Answers those of these lines that have no answer in the folder, and returns how many they were."""
    source = folder / "in.jsonl"
    source.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    with source.open("rb") as file, AnswerFile.opened(str(folder / "out.jsonl")) as answers:
        batch = Batch(file, answers, False, model)
        assert await batch.num_lines(LIMITS) == len(lines)
        number = 0
        async for line, name in batch.lines(LIMITS):
            number += 1
            batch.put(number, line if isinstance(line, bytes) else LineAnswer(line.custom_id, 200, "req", {}), name)
        assert batch.num_known == len(lines) - number
        return number


def request(custom_id: str, prompt: str, method: str = "POST") -> dict[str, Any]:
    return {"custom_id": custom_id, "method": method, "url": "/v1/completions", "body": {"prompt": prompt}}


async def test_a_run_that_goes_on_has_the_same_lines_and_model(tmp_path: Path) -> None:
    lines = [request("a", "One"), request("b", "Two", "PUT"), "no JSON", request("a", "Three")]
    assert await left(tmp_path, [*lines]) == 4
    assert await left(tmp_path, [*lines, request("c", "Four")]) == 1
    before = (tmp_path / "out.jsonl").read_bytes()
    for changed in ([request("d", "Five"), request("a", "Other")], [request("d", "Five"), request("b", "Two")]):
        with pytest.raises(NotAnswers, match="line 2: there is an answer of this `custom_id` already, to another"):
            await left(tmp_path, changed)
    with pytest.raises(NotAnswers, match=r"line 1: .* or of another model: name another file"):
        await left(tmp_path, lines, "other")
    assert (tmp_path / "out.jsonl").read_bytes() == before
