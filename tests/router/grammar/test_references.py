"""What references within a schema point at."""

import pytest

from penstock.router.grammar.references import resolved

SCHEMA = {"$defs": {"a b": {"type": "null"}, "c/d~e": 1}, "prefixItems": [{"type": "string"}, {"type": "number"}]}


@pytest.mark.parametrize(("reference", "expected"), [
    ("#", SCHEMA), ("#/$defs/a b", {"type": "null"}), ("#/$defs/a%20b", {"type": "null"}), ("#/$defs/c~1d~0e", 1),
    ("#/prefixItems/1", {"type": "number"}), ("#/prefixItems/2", None), ("#/prefixItems/01", None),
    ("#/prefixItems/-", None), ("#/prefixItems/" + "9" * 5000, None), ("#/$defs/none", None),
    ("#/$defs/c~1d~0e/x", None),
    ("#anchor", None), ("$defs", None), ("https://example.com/$defs", None), ("", None), (5, None), ({}, None),
], ids=lambda value: str(value)[:20])
def test_the_part_of_the_schema(reference: object, expected: object) -> None:
    assert resolved(reference, SCHEMA) == expected
