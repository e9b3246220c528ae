"""The versions by which KServe's routes know models."""

from collections.abc import Iterator
from typing import cast

import pytest

from penstock.router.api.kserve.models import id_of, ids_of, versions_of
from penstock.router.errors import ModelNotFound
from penstock.router.generation.services import Listed, Services
from penstock.router.versions import split_version


class Names:
    """Services that have names alone."""

    def listed(self) -> Iterator[Listed]:
        yield from (Listed(name) for name in ("demo", "chat@10", "chat@9", "org/code@2"))
        yield Listed("code", targets={"org/code@2": 1.0})


SERVICES = cast(Services, Names())


@pytest.mark.parametrize(("name", "version", "found"), [
    ("demo", "", "demo"), ("demo", "1", "demo"), ("chat", "", "chat@10"), ("chat", "9", "chat@9"),
    ("chat@9", "", "chat@9"), ("chat@9", "10", "chat@10"), ("code", "", "code"), ("org/code", "2", "org/code@2"),
    ("adapter", "", "adapter"), ("adapter", "1", "adapter")])
def test_the_model_of_a_name_and_a_version(name: str, version: str, found: str) -> None:
    assert id_of(SERVICES, name, version) == found


@pytest.mark.parametrize(("name", "version"), [("demo", "2"), ("chat", "1"), ("chat", "x"), ("chat@9", "1"),
                                               ("adapter", "2")])
def test_versions_that_there_are_not(name: str, version: str) -> None:
    with pytest.raises(ModelNotFound):
        id_of(SERVICES, name, version)


def test_all_versions_of_a_model() -> None:
    assert versions_of(SERVICES, "chat") == ["9", "10"]
    assert versions_of(SERVICES, "demo") == ["1"]
    assert versions_of(SERVICES, "none") == []


def test_the_models_of_an_alias() -> None:
    assert ids_of(SERVICES, "code") == ["org/code@2"]
    assert ids_of(SERVICES, "chat") == ["chat@10"]


@pytest.mark.parametrize(("name", "split"), [
    ("chat@3", ("chat", "3")), ("chat", ("chat", "1")), ("org/name@main", ("org/name@main", "1")), ("@3", ("@3", "1")),
    ("a@2@3", ("a@2", "3"))])
def test_a_name_is_split(name: str, split: tuple[str, str]) -> None:
    assert split_version(name) == split
