"""The page of models has a row for each architecture, in the form that the command gives it, and none breaks a promise;
and the files that it is made with are what they are to be."""

import pytest

from penstock.shard.models.families import ENCODER_FAMILIES, FAMILIES
from penstock.shard.models.quantization import QUANTIZATIONS
from tests.known_checkpoints import KNOWN, KNOWN_ENCODERS
from tests.models import encoders, quantised
from tests.models.measure import Found, measure_alone
from tests.models.table import CELLS, EQUALITIES, NATIVE, NOTHING, PAGE, native_rows, parse, render

TEXT = PAGE.read_text()
ROWS, SETTING = parse(TEXT)
ENCODERS = encoders.parse(TEXT)


def test_the_page_has_the_form_that_the_command_gives_it() -> None:
    assert render(ROWS, ENCODERS, SETTING) == TEXT, "python -m tests.models writes it anew"
    assert {len(row.cells) for row in ROWS} == {len(CELLS)}


def test_a_row_for_each_architecture() -> None:
    assert [row.architecture for row in ROWS if row.by == NATIVE] == sorted(FAMILIES)
    assert sorted(row.architecture for row in ROWS) == sorted(KNOWN)


def test_a_row_for_each_family_of_encoders() -> None:
    assert {*KNOWN_ENCODERS} == {*ENCODER_FAMILIES}
    assert [row.family for row in ENCODERS] == sorted(KNOWN_ENCODERS)
    for row in ENCODERS:
        vectors, *others = row.cells
        assert float(vectors) <= 1e-4
        assert others == ["yes", "yes", "1, 2, 4", "all"], row.family


def test_no_row_breaks_a_promise() -> None:
    for row in ROWS:
        cells = dict(zip(CELLS, row.cells, strict=True))
        equal = {"greedy": cells["greedy"], **{name: cells[name] for name in EQUALITIES}, "shards": cells["shards"]}
        if equal["cached"] == NOTHING:
            del equal["cached"]
        if row.by == NATIVE:
            assert equal == {**dict.fromkeys(equal, "yes"), "shards": "1, 2, 4"}, row.architecture
            assert float(cells["logits"]) <= 1e-4, row.architecture


def test_a_row_names_what_is_otherwise() -> None:
    usual = Found("a", "A", 3e-6, True, dict.fromkeys(EQUALITIES, True), (1, 2, 4), ("int8",), (), has_gguf=True)
    other = Found("b, c", "A", 2e-5, None, dict.fromkeys(EQUALITIES, False), (1,), ("int8",), (), has_gguf=False)
    (row,) = native_rows([usual, other])
    assert row.cells == ("2e-05", f"yes; {NOTHING} for `b, c`", *["yes; no for `b, c`"] * len(EQUALITIES),
                         "1, 2, 4; 1 for `b, c`", "`int8`", "none", "yes; no for `b, c`")


def test_all_methods_are_tried_but_those_of_no_checkpoint() -> None:
    assert {*quantised.METHODS, *quantised.ELSEWHERE} == set(QUANTIZATIONS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "is_read"), [("llama", True), ("gpt2", False)])
def test_a_checkpoint_that_is_measured_anew_is_as_its_row_says(name: str, is_read: bool) -> None:
    """All but the logits' difference, whose digits depend on the machine, and groups of shards, which
    `tests/shard/test_families.py` compares."""
    found = measure_alone(name)
    assert found.difference <= 1e-4
    assert (found.has_gguf, "awq" in found.methods) == (is_read, is_read)
    (today,) = native_rows([found])
    (row,) = (row for row in ROWS if row.architecture == found.architecture)
    compared = [index for index, cell in enumerate(CELLS) if cell not in ("logits", "shards")]
    assert [today.cells[index] for index in compared] == [row.cells[index].partition(";")[0] for index in compared]
