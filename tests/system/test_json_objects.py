"""How much JSON may have in it, counted before it is parsed: as a parser counts it."""

import json
import random
from typing import Any

import pytest

from penstock.system import json_objects
from penstock.system.json_objects import check_amount

TEXTS = ["", "a,b", "[", "{{", '"', "\\", '\\"', '\\\\"[', "é😀", "\n", "[1, 2, {\"a\": 3}]"]


def parts(value: Any) -> int:
    """Counts texts, names of fields, lists and objects."""
    match value:
        case dict():
            return 1 + len(value) + sum(map(parts, value.values()))
        case list():
            return 1 + sum(map(parts, value))
        case _:
            return int(isinstance(value, str))


def values(value: Any) -> int:
    """Counts commas, lists and objects."""
    if isinstance(value, (list, dict)):
        inner = [*value.values()] if isinstance(value, dict) else value
        return 1 + max(0, len(inner) - 1) + sum(map(values, inner))
    return 0


def some(chance: random.Random, depth: int = 4) -> Any:
    match chance.randrange(5 if depth else 3):
        case 0:
            return chance.choice(TEXTS)
        case 1:
            return "".join(chance.choices(TEXTS, k=3))
        case 2:
            return chance.choice([1, -2.5, None, True])
        case 3:
            return [some(chance, depth - 1) for _ in range(chance.randrange(5))]
        case _:
            names = [chance.choice(TEXTS) + str(number) for number in range(chance.randrange(5))]
            return {name: some(chance, depth - 1) for name in names}


def fits(content: bytes, max_values: int) -> bool:
    try:
        check_amount(content, max_values)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("seed", range(200))
def test_what_is_within_texts_does_not_count(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = some(random.Random(seed))
    content = json.dumps(value, ensure_ascii=bool(seed % 2)).encode()
    for most in (parts(value) - 1, parts(value)):
        monkeypatch.setattr(json_objects, "MAX_PARTS", most)
        assert fits(content, 10**6) is (parts(value) <= most)
    monkeypatch.setattr(json_objects, "MAX_PARTS", 10**6)
    assert fits(content, values(value))
    assert values(value) == 0 or not fits(content, values(value) - 1)
