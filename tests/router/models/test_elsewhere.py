"""Models of other servers beside those that are loaded here: they are listed, have aliases, and are never unloaded."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.router.errors import ValidationError, WrongTask
from penstock.router.foreign.models import ForeignModels
from penstock.router.foreign_settings import ForeignSettings
from penstock.router.models.aliases import Aliases
from penstock.router.models.models import Models
from tests.router.models.test_models import service_of


@pytest.fixture
async def models(tmp_path: Path) -> AsyncIterator[Models]:
    elsewhere = ForeignModels.open([ForeignSettings.parse("far", {"url": ["http://a", "http://b"]}, 1)])
    models = Models(service_of("first"), 0, [], Aliases({"best": {"first": 1.0}}), max_memory=1, max_load_wait=1.0,
                    file=tmp_path / "aliases", elsewhere=elsewhere)
    yield models
    await models.close()


async def test_it_is_listed(models: Models) -> None:
    assert [(each.name, each.state, each.source) for each in models.listed()] == [
        ("first", "ready", None), ("far", "unasked", "http://a"), ("best", None, None)]


async def test_an_alias_may_come_to_stand_for_it(models: Models) -> None:
    assert models.elsewhere(models.resolve("best", None)) is None
    await models.point("best", {"far": 1.0})
    found = models.elsewhere(models.resolve("best", None))
    assert found is not None
    assert found.name == "far"


async def test_nothing_of_it_is_loaded_or_unloaded(models: Models) -> None:
    await models.load("far")
    with pytest.raises(ValidationError, match="far is answered by a server elsewhere"):
        await models.unload("far")
    with pytest.raises(WrongTask, match="it has POST /v1/completions"):
        await models.take("far")
