"""The tables and pictures of the pages are those of the results that are kept."""

from pathlib import Path

import pytest

from penstock.bench import figures


@pytest.mark.parametrize("name", figures.records())
def test_a_picture_is_of_its_results(tmp_path: Path, name: str) -> None:
    figures.draw(figures.records()[name], tmp_path / f"{name}.svg")
    assert (tmp_path / f"{name}.svg").read_text() == (figures.PICTURES / f"{name}.svg").read_text(), "make figures"


def test_the_tables_are_of_their_results() -> None:
    assert figures.records()
    text = figures.PAGE.read_text()
    assert text == figures.page(text), "make figures"


def test_a_result_names_how_it_was_measured() -> None:
    for record in figures.records().values():
        assert all(record[key] for key in ("kind", "subject", "date", "machine", "version", "command", "figures"))
