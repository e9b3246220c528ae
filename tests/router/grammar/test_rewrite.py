import datetime
import random
import re
import uuid

import pytest

from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.rewrite import TEXTS, of_length, of_type
from tests.router.grammar.grammar_driver import accepts, draw


@pytest.mark.parametrize(("value", "accepted", "refused"), [
    ("integer", ["12", "-3"], ["1.5", "x", "1 "]),
    ({"type": "integer", "minimum": 1, "maximum": 12}, ["1", "12"], ["0", "13"]),
    ("number", ["1.5", "-2"], ["x"]),
    ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, ["0.25"], ["1", "-0.5"]),
    ("boolean", ["true", "false"], ["True", '"true"']),
    ("date", ["2024-02-29"], ["2023-02-29", '"2024-02-29"', "2024-13-01"]),
    ("time", ["23:59:59Z", "01:02:03.5+02:00"], ["24:00:00Z", "01:02:03"]),
    ("date-time", ["2024-02-29T23:59:59Z"], ["2024-02-29 23:59:59Z"]),
    ("email", ["a.b@example.com"], ["a@b", "@example.com", "a b@example.com"]),
    ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
])
async def test_types(compiler, value, accepted, refused):
    grammar = await compiler.compile(of_type(value))
    assert [text for text in accepted if not accepts(grammar, text)] == []
    assert [text for text in refused if accepts(grammar, text)] == []


@pytest.mark.parametrize(("name", "read"), [
    ("date", datetime.date.fromisoformat), ("time", datetime.time.fromisoformat),
    ("date-time", datetime.datetime.fromisoformat), ("uuid", uuid.UUID)])
async def test_what_is_drawn_is_of_the_type(compiler, name, read):
    dice = random.Random(name)
    grammar = await compiler.compile(of_type(name))
    texts = [draw(grammar, dice, max_tokens=100) for _ in range(50)]
    assert len(set(texts)) > 40
    for text in texts:
        assert read(re.sub(r"\.(\d{6})\d+", r".\1", text))


def test_dates_are_those_of_the_calendar():
    days = [datetime.date(2000, 1, 1) + datetime.timedelta(days=number) for number in range(366 + 365)]
    assert all(re.fullmatch(TEXTS["date"], day.isoformat()) for day in days)
    assert [year for year in range(1890, 2110) if re.fullmatch(TEXTS["date"], f"{year}-02-29")] == [
        year for year in range(1890, 2110) if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)]


@pytest.mark.parametrize(("value", "accepted", "refused"), [
    ({"unit": "characters", "min": 2, "max": 3}, ["äb", "a\nb"], ["a", "abcd"]),
    ({"unit": "characters", "max": 1}, ["", "ß"], ["ab"]),
    ({"unit": "words", "min": 2, "max": 3}, ["two words", "now three words"], ["one", "no  double", "now it is four"]),
    ({"unit": "words", "max": 1}, ["", "one"], ["two words"]),
    ({"unit": "words", "min": 2}, ["one two three four five"], ["one"]),
    ({"unit": "items", "min": 1, "max": 2}, ['["a"]', '["a","b c"]'], ["[]", '["a","b","c"]', "a"]),
])
async def test_lengths(compiler, value, accepted, refused):
    grammar = await compiler.compile(of_length(value))
    assert [text for text in accepted if not accepts(grammar, text)] == []
    assert [text for text in refused if accepts(grammar, text)] == []


@pytest.mark.parametrize(("rewrite", "value", "reason"), [
    (of_type, "colour", "one of integer, number, boolean, date, time, date-time, email, uuid. Given: colour"),
    (of_type, ["integer"], "`type` must be one of"),
    (of_type, {"type": ["integer"]}, "`type` must be one of"),
    (of_type, {"type": "date", "minimum": 1}, "`minimum` is not supported for the type date"),
    (of_type, {"type": "integer", "maxLength": 1}, "`maxLength` is not supported for the type integer"),
    (of_type, {"type": "integer", "minimum": "1"}, "`minimum` must be a number. Given: 1"),
    (of_length, 3, "an object of `unit`, `min` and `max`"),
    (of_length, {"unit": "words", "mean": 3}, "an object of `unit`, `min` and `max`"),
    (of_length, {"unit": "lines"}, "`unit` must be one of characters, words, items. Given: lines"),
    (of_length, {"unit": "words", "min": -1}, "`min` must be an integer, >= 0 and <= 100000. Given: -1"),
    (of_length, {"unit": "words", "max": 10**9}, "`max` must be an integer, >= 0 and <= 100000. Given: 1000000000"),
    (of_length, {"unit": "words", "max": True}, "`max` must be an integer"),
    (of_length, {"unit": "words", "min": 3, "max": 2}, "`max` must be >= 1 and >= `min`. Given: 2"),
])
def test_refused(rewrite, value, reason):
    with pytest.raises(GrammarError) as refusal:
        rewrite(value)
    assert reason in str(refusal.value)
