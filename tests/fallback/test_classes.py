"""Classes of transformers generate what its own `generate` does, and the page of them says what is so."""

from pathlib import Path

import pytest

from penstock.shard.fallback.architectures import causal_models
from tests.fallback.comparison import PAGED, compare
from tests.fallback.page import NO, PAGE, YES, parse, render
from tests.fallback.unequal import BORDERLINE, REASONS, UNEQUAL

NUM_TOKENS = 40
LEAST_SHARE = 0.85
WAYS = {"ApertusForCausalLM": PAGED, "GPTJForCausalLM": "own cache, in chunks",
        "MambaForCausalLM": "own cache, one by one", "RecurrentGemmaForCausalLM": "own cache, all again"}

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' own, which are many


@pytest.mark.parametrize("name", WAYS)
def test_each_way_generates_the_same_tokens(name: str, tmp_path: Path) -> None:
    found = compare(name, tmp_path, 12)
    assert found.way == WAYS[name]
    assert found.is_equal


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(causal_models() - UNEQUAL.keys() - BORDERLINE.keys()))
def test_every_class_generates_the_same_tokens(name: str, tmp_path: Path) -> None:
    found = compare(name, tmp_path, NUM_TOKENS)
    assert found.is_equal
    assert found.distinct > 1, "one token again and again shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", UNEQUAL)
def test_nothing_is_listed_that_works(name: str, tmp_path: Path) -> None:
    listed = UNEQUAL[name]
    with pytest.raises(listed.error, match=listed.text):
        compare(name, tmp_path, NUM_TOKENS)


def test_the_page_has_the_form_that_the_command_gives_it() -> None:
    text = PAGE.read_text()
    assert render(*parse(text)) == text, "python -m tests.fallback writes it anew"


def test_the_page_has_every_class_and_names_those_that_are_not_equal() -> None:
    rows, _ = parse(PAGE.read_text())
    assert {row.name for row in rows} == causal_models() >= UNEQUAL.keys()
    reasons = {row.name: row.reason for row in rows if row.equal == NO}
    assert reasons.items() <= REASONS.items()
    assert UNEQUAL.keys() <= reasons.keys()
    assert sum(row.equal == YES for row in rows) >= LEAST_SHARE * len(rows)
