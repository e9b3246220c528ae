"""The file of prices, and what a use costs."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.router.accounts.price_file import PriceFile
from penstock.router.accounts.prices import Price
from penstock.router.accounts.use import NANOS, TOKENS, Use, money
from penstock.system.arguments import InvalidArgument
from tests.paths import ROOT

FREE = {"per_request": 0}


@pytest.mark.parametrize(("content", "sentence"), [
    (None, "`currency` must be given"),
    ([1], "it must have fields"),
    ({"currency": "US D"}, "`currency` must be a name of letters, .* Given: 'US D'"),
    ({"prices": 3}, "`prices` must be a list. Given: 3"),
    ({"price": []}, r"`price` is no field. Given: \[\]"),
    ({"prices": [3]}, "`prices.0` must have fields. Given: 3"),
    ({"prices": [{"model": "a"}]}, "`prices.0` needs a price: `per_million_tokens`, `per_machine_second` or"),
    ({"prices": [{"per_request": -1}]}, "`prices.0.per_request` must be greater than or equal to 0. Given: -1"),
    ({"prices": [{"per_request": True}]}, "`prices.0.per_request` must be a number. Given: True"),
    ({"prices": [{"per_machine_second": "much"}]}, "`prices.0.per_machine_second` must be a number. Given: 'much'"),
    ({"prices": [{"per_request": 1e7}]}, "`prices.0.per_request` must be less than .* Given: 10000000.0"),
    ({"prices": [{"per_request": float("nan")}]}, "`prices.0.per_request` must be a finite number. Given: nan"),
    ({"prices": [{"per_request": 1e-10}]}, "`prices.0.per_request` must have at most 9 decimal places. Given: 1e-10"),
    ({"prices": [{"per_million_tokens": {"thought": 1}}]},
     "`prices.0.per_million_tokens.thought` must be 'input', .* or 'kept'. Given: 'thought'"),
    ({"prices": [{"per_million_tokens": {"input": 2, "cached": 1}}]},
     "`prices.0.per_million_tokens`: `input` and `cached` can't be given together"),
    ({"prices": [{"key": "a b", **FREE}]}, "`prices.0.key` must be a name of letters, .* Given: 'a b'"),
    ({"prices": [{"key": "a", **FREE}, {"key": "a", "model": "b", **FREE}]},
     "`prices.1` never holds, since one before it is for the same requests: of key a and model b"),
    ({"budgets": [{"key": "a"}]}, "`budgets.0` needs `money` or `tokens`"),
    ({"budgets": [{"tokens": 1.5}]}, "`budgets.0.tokens` must be a whole number. Given: 1.5"),
    ({"budgets": [{"money": 5}]}, "`budgets.0.money`: nothing costs money without `prices`. Given: 5"),
    ({"budgets": [{"tokens": 1}, {"key": "a", "tokens": 2}]},
     "`budgets.1` never holds, since one before it is for the same key: a"),
])
def test_a_wrong_file_is_told_with_its_field_and_value(content: Any, sentence: str) -> None:
    given = {"currency": "USD", **content} if isinstance(content, dict) else content
    with pytest.raises(InvalidArgument, match=f"^{sentence}"):
        PriceFile.of(given)


@pytest.mark.parametrize(("content", "sentence"), [
    (None, "`prices`: cannot read .*file.yaml: No such file or directory"),
    ("a: [", "`prices`: .*file.yaml is no YAML: "), ("currency: 2026-13-45", "`prices`: .*file.yaml is no YAML: "),
    ("[" * 5000, "`prices`: .*file.yaml: its lists and mappings are nested too deep"),
    ("a: 1", "`prices`: .*file.yaml: `currency` must be given")])
def test_a_file_that_can_not_be_read(tmp_path: Path, content: str | None, sentence: str) -> None:
    file = tmp_path / "file.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidArgument, match=sentence):
        PriceFile(file).read()


def test_the_first_price_and_budget_that_hold_are_taken() -> None:
    prices = PriceFile.of({
        "currency": "EUR",
        "prices": [{"key": "a", "model": "x", "per_request": 1}, {"model": "x", "per_request": "0.1"},
                   {"key": "b", "per_million_tokens": {"output": 0.3}}],
        "budgets": [{"key": "a", "tokens": 0}, {"money": 0.07}]})
    one = Use(requests=1, output_tokens=1_000_000)
    asked = [("a", "x"), ("b", "x"), ("b", "y"), ("a", "y")]
    assert [money(prices.cost(*each, one)) for each in asked] == ["1", "0.1", "0.3", "0"]
    budgets = [prices.budget_of(key) for key in ("a", "b")]
    assert [(each.nanos, each.tokens) for each in budgets if each] == [(None, 0), (70_000_000, None)]


AMOUNTS = st.integers(0, 10**18)
COUNTS = st.integers(0, 10**9)


@given(st.dictionaries(st.sampled_from(TOKENS), AMOUNTS), AMOUNTS, AMOUNTS, st.lists(COUNTS, min_size=11, max_size=11))
def test_a_cost_is_exact_to_half_a_billionth(
    millions: dict[str, int], second: int, request: int, counts: list[int]
) -> None:
    use = Use(*counts)
    cost = Price(None, None, millions, second, request).cost(use)
    exact = Fraction(use.step_us, 10**6) * Fraction(second, NANOS) + use.requests * Fraction(request, NANOS) + sum(
        Fraction(use.tokens(kind), 10**6) * Fraction(price, NANOS) for kind, price in millions.items())
    assert abs(Fraction(cost, NANOS) - exact) <= Fraction(1, 2 * NANOS)


@given(st.integers(0, 2**63 - 1))
def test_money_is_written_exactly(nanos: int) -> None:
    assert Fraction(money(nanos)) == Fraction(nanos, NANOS)
    assert "E" not in money(nanos)


def test_the_file_of_the_page_is_one() -> None:
    [content] = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/accounting.md").read_text(), re.MULTILINE | re.DOTALL)
    prices = PriceFile.of(yaml.safe_load(content))
    assert (prices.keys, prices.models) == ({"team-a"}, {"llama"})
