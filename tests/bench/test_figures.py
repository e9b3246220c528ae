"""The tables and pictures of the pages are those of the results that are kept."""

from pathlib import Path

import pytest

from penstock.bench import figures
from penstock.bench.batching import timelines

KINDS = list(figures.PAGES)


@pytest.mark.parametrize("name", figures.records("served"))
def test_a_picture_is_of_its_results(tmp_path: Path, name: str) -> None:
    figures.draw(figures.records("served")[name], tmp_path / f"{name}.svg")
    assert (tmp_path / f"{name}.svg").read_text() == (figures.PICTURES / f"{name}.svg").read_text(), "make figures"


@pytest.mark.parametrize("picture", figures.TIMELINES, ids=lambda picture: picture.stem)
def test_a_picture_of_policies_is_of_what_the_scheduler_does(tmp_path: Path, picture: Path) -> None:
    timelines.draw(figures.TIMELINES[picture], tmp_path / picture.name)
    assert (tmp_path / picture.name).read_text() == picture.read_text(), "make figures"


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_are_of_their_results(kind: str) -> None:
    assert figures.records(kind)
    text = figures.PAGES[kind].read_text()
    assert text == figures.page(kind, text), "make figures"


def test_a_result_names_how_it_was_measured() -> None:
    for kind in KINDS:
        for record in figures.records(kind).values():
            assert all(record[key] for key in ("kind", "subject", "date", "machine", "version", "command", "figures"))
