"""Each sentence of docs/troubleshooting.md is one that the code says."""

import re
from collections.abc import Iterator

import pytest

from tests.paths import ROOT
from tests.sources import source, source_files

PAGE = (ROOT / "docs/troubleshooting.md").read_text()
ROOMS = ("contract", "launcher", "checkpoints", "router", "shard", "kernels", "system")


def texts() -> Iterator[str]:
    """Gives all texts of the code, those between the braces of f-strings by themselves, and the Makefile's."""
    for room in ROOMS:
        for file in source_files(room):
            for text in source(file).texts:
                yield re.sub(r"%(\.\d+)?[sdgf]", "…", text)
    for name in ("setup.py", "Makefile"):
        yield re.sub(r'" *\n *"|\\\n\s*', "", (ROOT / name).read_text()).replace("$(LOG)", ".venv/setup.log")


def sentences() -> list[str]:
    """Returns the sentences in the first column of the page's tables."""
    return [single or double.strip() for double, single in re.findall(r"^\| (?:`` (.*?) ``|`([^`]+)`) \|", PAGE, re.M)]


@pytest.fixture(scope="module")
def code() -> str:
    return "\n".join(texts())


def test_there_are_many() -> None:
    assert len(sentences()) > 35


@pytest.mark.parametrize("sentence", sentences())
def test_the_code_says_it(code: str, sentence: str) -> None:
    parts = [part.strip() for part in sentence.split("…") if part.strip(" :.,")]
    assert parts
    assert [part for part in parts if part not in code] == []
