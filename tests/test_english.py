"""Docstrings are in plain English: a list finds habits that make a newcomer stop."""

import re

import pytest

from tests.sources import PACKAGES, source, source_files

HABITS = {
    # "What the shard holds.", "Returns what the shard holds.": a noun says it, such as "The blocks of the shard."
    "“what” in place of a noun": re.compile(
        r"^What\b(?![^.]*\?)|^(?!Says|Tells|Shows|Decides|Asks|Explains)\w+s what\b"),
    # "Has the log tell of it.": it makes the log tell of it, or tells the log.
    "“has … do” in place of “makes … do”": re.compile(
        r"\b(?:has|have) (?:the|a|its|each|every|all) \w+ "
        r"(?:do|go|start|end|stop|wait|take|make|write|read|tell|answer)\b"),
    # "Of those that have not ended.": of which ones?
    "a sentence without its noun": re.compile(r"(?:^|[.!?]\s)Of (?:those|these|whom|which)\.?$"),
}


@pytest.mark.parametrize("habit", HABITS)
def test_no_docstring_has_a_habit(habit):
    found = {f"{file}:{line}": text for file in source_files(*PACKAGES) for line, text in source(file).docstrings
             if HABITS[habit].search(text)}
    assert found == {}


@pytest.mark.parametrize(("habit", "text"), [*zip(HABITS, [
    "Returns what the shard holds.", "Counts a call, and has the log tell of it.", "Of those."], strict=True)])
def test_a_habit_is_found(habit, text):
    assert HABITS[habit].search(text)
    assert not HABITS[habit].search("Says what to do about the blocks of the shard, of those that have not ended.")
