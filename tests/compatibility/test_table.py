"""The page of what is there of TGI is what the code says; every gap has a reason, and every behaviour a test."""

import ast
import re
from pathlib import Path

import pytest

from tests.compatibility.behaviours import BEHAVIOURS
from tests.compatibility.inventory import Entry, inventory, looked_at, treatment
from tests.compatibility.reasons import REASONS, Reason
from tests.compatibility.table import PAGE, REFUSED, Unknown, check, other_fields, render
from tests.compatibility.tei_inventory import looked_at_tei, tei_inventory
from tests.compatibility.tei_reasons import TEI_REASONS
from tests.compatibility.values import BODIES

TESTS = Path(__file__).parents[1]


async def test_page_is_what_is_so():
    async with looked_at() as servers, looked_at_tei() as of_tei:
        entries, teis = await inventory(servers), await tei_inventory(of_tei)
    expected = render(entries, REASONS, teis, TEI_REASONS)
    assert PAGE.read_text() == expected, "python -m tests.compatibility writes it anew"


@pytest.mark.parametrize(("is_served", "reasons", "message"), [
    (False, {}, "does not say why"), (True, {("Flags", "--a"): Reason("never")}, "but it is"),
    (True, {("Flags", "--b"): Reason("never")}, "is not TGI's")])
def test_gaps_and_reasons_go_together(is_served, reasons, message):
    with pytest.raises(Unknown, match=message):
        check([Entry("Flags", "--a", is_served)], reasons)


def test_a_field_is_listed_as_refused_where_it_is_refused():
    rows = dict(line.strip("|\n ").split(" | ") for line in other_fields() if line.startswith("| refused"))
    listed = {where.removeprefix("refused").strip(): {*re.findall(r"`(\w+)`", names)} for where, names in rows.items()}
    common = listed.pop("")
    assert {where: names | common for where, names in listed.items()} == {
        where: {*names} for where, names in REFUSED.items()}
    assert "length_penalty" in listed["beside `inputs`"], "it is taken in other places"


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.test)
def test_a_behaviour_has_a_test(behaviour):
    file, _, function = behaviour.test.partition("::")
    tree = ast.parse((TESTS / file).read_text())
    assert function in {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


async def test_a_field_without_effect_is_not_seen():
    """A body sent twice, and one with a field that nobody knows, are treated alike; so a difference means something."""
    async with looked_at() as servers:
        for path, body in BODIES.items():
            first, again = [await treatment(servers.talking, path, body) for _ in range(2)]
            assert first[0] == "200"
            assert again == first
            assert await treatment(servers.talking, path, {**body, "a_name_that_nobody_knows": [1]}) == first
