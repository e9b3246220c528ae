"""The page of what is there of TGI is what the code says; every gap has a reason, and every behaviour a test."""

import ast
from pathlib import Path

import pytest

from tests.compatibility.behaviours import BEHAVIOURS
from tests.compatibility.inventory import Entry, inventory, looked_at
from tests.compatibility.reasons import REASONS, Reason
from tests.compatibility.table import PAGE, Unknown, check, render

TESTS = Path(__file__).parents[1]


async def test_page_is_what_is_so():
    async with looked_at() as server:
        entries = await inventory(server)
    assert PAGE.read_text() == render(entries, REASONS), "python -m tests.compatibility writes it anew"


@pytest.mark.parametrize(("is_served", "reasons", "message"), [
    (False, {}, "does not say why"), (True, {("Flags", "--a"): Reason("never")}, "but it is"),
    (True, {("Flags", "--b"): Reason("never")}, "is not TGI's")])
def test_gaps_and_reasons_go_together(is_served, reasons, message):
    with pytest.raises(Unknown, match=message):
        check([Entry("Flags", "--a", is_served)], reasons)


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.test)
def test_a_behaviour_has_a_test(behaviour):
    file, _, function = behaviour.test.partition("::")
    tree = ast.parse((TESTS / file).read_text())
    assert function in {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
