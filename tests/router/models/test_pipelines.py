"""Pipelines among models: they are listed with the state of theirs, loaded with them, and never in a circle."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.router.errors import ValidationError, WrongTask
from penstock.router.models.aliases import Aliases
from penstock.router.models.models import Models
from penstock.router.pipeline_settings import PipelineSettings
from tests.router.models.test_models import service_of, serving


def piped(name: str, *models: str) -> PipelineSettings:
    return PipelineSettings.parse(name, {"pipeline": [{"model": model} for model in models]}, Path())


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    models = Models(service_of("first"), 0, [], Aliases({"best": {"first": 1.0}}), max_memory=1, max_load_wait=1.0,
                    pipelines=[piped("one", "first", "best"), piped("two", "one")])
    yield models
    await models.close()


async def test_they_are_listed(models: Models) -> None:
    assert [(each.name, each.state, [*each.steps]) for each in models.listed()][1:3] == [
        ("one", "ready", ["first", "best"]), ("two", "ready", ["one"])]


async def test_their_models_are_loaded_with_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        pipeline = piped("piped", "first", "a")
        server.models._pipelines["piped"] = pipeline
        states = []
        for name in ("first", "piped"):
            await server.models.load(name)
            states.append(next(each.state for each in server.models.listed() if each.name == "piped"))
        assert states == ["unloaded", "ready"]
        with pytest.raises(ValidationError, match="piped is answered by steps, so that nothing is loaded"):
            await server.models.unload("piped")


async def test_routes_that_pipelines_do_not_have_refuse_them(models: Models) -> None:
    with pytest.raises(WrongTask, match="the model is a pipeline; it has POST /generate, POST /generate_stream"):
        await models.take("two")


async def test_an_alias_may_stand_for_them_but_not_in_a_circle(models: Models) -> None:
    await models.point("other", {"two": 1.0})
    assert models.resolve("other", None) == "two"
    with pytest.raises(ValidationError, match="must not ask one another in a circle: "):
        await models.point("best", {"one": 1.0})
    with pytest.raises(ValidationError, match="one is a pipeline, which can't be one"):
        await models.point("other", {"first": 1.0}, {"one": 0.5})
