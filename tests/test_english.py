"""Docstrings are in plain English: a list finds habits that make a newcomer stop."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.paths import ROOT
from tests.test_imports import PACKAGES, source_files

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


def docstrings(file: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, those of attributes among them; code in it becomes `…`."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        for statement in node.body if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "`…`", text)).strip()


@pytest.mark.parametrize("habit", HABITS)
def test_no_docstring_has_a_habit(habit):
    found = {f"{file}:{line}": text for file in source_files(*PACKAGES) for line, text in docstrings(file)
             if HABITS[habit].search(text)}
    assert found == {}


@pytest.mark.parametrize(("habit", "text"), [*zip(HABITS, [
    "Returns what the shard holds.", "Counts a call, and has the log tell of it.", "Of those."], strict=True)])
def test_a_habit_is_found(habit, text):
    assert HABITS[habit].search(text)
    assert not HABITS[habit].search("Says what to do about the blocks of the shard, of those that have not ended.")
