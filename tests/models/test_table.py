"""The page of models has a row for each architecture, in the form that the command gives it, and none breaks a promise;
and the files that it is made with are what they are to be."""

from pathlib import Path

import pytest

from penstock.shard.models.families import FAMILIES
from penstock.shard.models.quantization import QUANTIZATIONS
from tests.family_models import make_family
from tests.known_checkpoints import KNOWN
from tests.models import gguf_file, quantised
from tests.models.measure import Found
from tests.models.table import CELLS, EQUALITIES, NATIVE, NOTHING, PAGE, native_rows, parse, render

TEXT = PAGE.read_text()
ROWS, SETTING = parse(TEXT)


def test_the_page_has_the_form_that_the_command_gives_it() -> None:
    assert render(ROWS, SETTING) == TEXT, "python -m tests.models writes it anew"
    assert {len(row.cells) for row in ROWS} == {len(CELLS)}


def test_a_row_for_each_architecture() -> None:
    assert [row.architecture for row in ROWS if row.by == NATIVE] == sorted(FAMILIES)
    assert sorted(row.architecture for row in ROWS) == sorted(KNOWN)


def test_every_equality_holds() -> None:
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
@pytest.mark.parametrize(("name", "is_so"), [("llama", True), ("gpt2", False)])
def test_files_are_read_or_not(name: str, is_so: bool, tmp_path: Path) -> None:
    plain = make_family(tmp_path / "plain", name)
    assert quantised.is_read(plain, "awq", tmp_path / "awq") is is_so
    assert gguf_file.is_read(plain, tmp_path) is is_so
