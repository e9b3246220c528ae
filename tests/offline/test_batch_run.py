"""Lines of a batch whose engine fails, or is away for a while."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.offline import batch_run
from penstock.offline.failures import NoShards
from penstock.offline.session import Session
from penstock.router.batches.answers import LineAnswer
from penstock.router.batches.lines import Line
from penstock.router.errors import Unhealthy
from penstock.router.generation.service import Services

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

    monkeypatch.setattr(batch_run, "answer_line", answer)
    monkeypatch.setattr(batch_run, "RETRY_SECONDS", 0.0)
    return await batch_run._answered(cast(Session, session), cast(Services, services), LINE)


async def test_lines_are_asked_until_the_group_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answered(monkeypatch, [Unhealthy(), Unhealthy(), ANSWER], True, False) is ANSWER


async def test_a_failure_of_the_line_alone_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answered(monkeypatch, [FAILURE], True, False) is FAILURE


async def test_a_failure_of_the_engine_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoShards, match="the engine failed"):
        await answered(monkeypatch, [FAILURE, Unhealthy()], False, True)
