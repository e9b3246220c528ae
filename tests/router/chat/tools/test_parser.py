"""Answers into content and calls: each format, what is no call, and that cuts between pieces change nothing."""

import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies

from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta
from penstock.router.chat.tools.call_format import CallFormat
from penstock.router.chat.tools.families import FORMATS, native_format
from penstock.router.chat.tools.parser import MAX_BLANKS, CallParser
from penstock.router.chat.tools.pattern import MAX_HEADER
from tests.router.chat.tools.calls import one, parse

HERMES, MISTRAL, LLAMA = (
    next(form for form in FORMATS if form.name == name) for name in ("hermes", "mistral", "llama"))
ONE = '{"city": "P}\\"aris"}'


def ended(deltas: list[Delta]) -> list[Delta]:
    """With the ends of calls whose arguments are whole."""
    whole: list[Delta] = []
    for delta in deltas:
        whole.append(delta)
        if isinstance(delta, Arguments):
            with suppress(ValueError):
                json.loads(delta.text)
                whole.append(CallEnd(delta.index))
    return whole


@pytest.mark.parametrize("form", [HERMES, MISTRAL, LLAMA], ids=lambda form: form.name)
def test_calls_as_a_model_writes_them(form: CallFormat) -> None:
    text = form.begin + one(form, "weather", ONE) + form.end
    begun = [CallBegin(0, "weather"), Arguments(0, ONE)]
    assert parse(form, text) == ended(begun)
    both = form.begin + one(form, "weather", ONE) + form.separator + one(form, "time", "{}") + form.end
    assert parse(form, both) == ended([*begun, CallBegin(1, "time"), Arguments(1, "{}")])
    assert parse(form, *both) == parse(form, both)
    assert parse(form, "No call.") == [Content("No call.")]
    assert parse(form) == []


@pytest.mark.parametrize(("form", "text", "expected"), [
    (HERMES, 'Let me see.\n<tool_call>{"name":"f","arguments":{}}</tool_call>\n',
     [Content("Let me see."), CallBegin(0, "f"), Arguments(0, "{}")]),
    (HERMES, '\n\n<tool_call>\n{"name": "f",\n"arguments": {"a":\n1}}\n</tool_call>',
     [CallBegin(0, "f"), Arguments(0, '{"a":\n1}')]),
    (HERMES, '<tool_call> {"name": "f", "arguments": {}} </tool_call> Done. <tool_call>{"name": "g", "arguments": {}',
     [CallBegin(0, "f"), Arguments(0, "{}"), Content(" Done."), CallBegin(1, "g"), Arguments(1, "{}")]),
    (HERMES, "a < b, <tool>, <tool_call> and <tool_call", [Content("a < b, <tool>, <tool_call> and <tool_call")]),
    (HERMES, '<tool_call>\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
     [Content("<tool_call>"), CallBegin(0, "f"), Arguments(0, "{}")]),
    (HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": "b', [CallBegin(0, "f"), Arguments(0, '{"a": "b')]),
    (HERMES, '<tool_call>\n{"name": "f", "argum', [Content('<tool_call>\n{"name": "f", "argum')]),
    (HERMES, '<tool_call>\n{"name": 5, "arguments": {}}', [Content('<tool_call>\n{"name": 5, "arguments": {}}')]),
    (HERMES, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_', [CallBegin(0, "f"), Arguments(0, "{}")]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {}, "x": 1}',
     [CallBegin(0, "f"), Arguments(0, "{}"), Content(', "x": 1}')]),
    (HERMES, '<tool_call>{"name": "\\u00e4\\"", "arguments": {}}</tool_call>',
     [CallBegin(0, 'ä"'), Arguments(0, "{}")]),
    (MISTRAL, 'Text [TOOL_CALLS][{"name": "f", "arguments": {}},{"name": "g", "arguments": {}}]\n',
     [Content("Text"), CallBegin(0, "f"), Arguments(0, "{}"), CallBegin(1, "g"), Arguments(1, "{}")]),
    (MISTRAL, "a [TOOL_CALLS] b", [Content("a [TOOL_CALLS] b")]),
    (LLAMA, '\n{"name": "f", "parameters": {}}\n', [CallBegin(0, "f"), Arguments(0, "{}")]),
    (LLAMA, '{"name": "f", "parameters": {}} and on', [CallBegin(0, "f"), Arguments(0, "{}"), Content(" and on")]),
    (LLAMA, 'So: {"name": "f", "parameters": {}}', [Content('So: {"name": "f", "parameters": {}}')]),
    (LLAMA, '{"name": "Ann", "age": 5}', [Content('{"name": "Ann", "age": 5}')]),
    (LLAMA, ' {"name": "Ann"', [Content(' {"name": "Ann"')]),
    (LLAMA, "  ", [Content("  ")]),
])
def test_a_text(form: CallFormat, text: str, expected: list[Delta]) -> None:
    assert parse(form, text) == parse(form, *text) == ended(expected)


def test_what_is_given_is_given_at_once() -> None:
    parser = CallParser(HERMES)
    assert parser.push("Hm, ") == [Content("Hm,")]
    assert parser.push("well <to") == [Content(" well")]
    assert parser.push("ol_call>") == []
    assert parser.push('{"name": "f", "arguments": {"a"') == [CallBegin(0, "f"), Arguments(0, '{"a"')]
    assert parser.push(": 1") == [Arguments(0, ": 1")]
    assert parser.push("}} ") == [Arguments(0, "}"), CallEnd(0)]
    assert parser.push("</tool_call>") == []
    assert parser.finish() == []


def test_what_is_held_is_bounded() -> None:
    blanks, name = " " * (MAX_BLANKS + 10), "n" * MAX_HEADER
    marked = '<tool_call>{"name": "f", "arguments": {}'
    assert parse(HERMES, "a" + blanks + marked) == [
        Content("a" + " " * 10), CallBegin(0, "f"), Arguments(0, "{}"), CallEnd(0)]
    endless = f'<tool_call>{{"name": "{name}", "arguments": {{}}'
    assert parse(HERMES, endless) == parse(HERMES, *endless) == [Content(endless)]
    parser = CallParser(LLAMA)
    assert parser.push(" " * (MAX_HEADER - 1)) == []
    assert parser.push(" ") == [Content(" " * MAX_HEADER)]


WORDS = strategies.sampled_from([
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[", "]", "{", "}", '"', "\\", '"name"', ":", ",", ";",
    '"arguments"', '"parameters"', '"f"', " ", "\n", "a", "ä", "{}",
    '{"name": "f", "arguments": {', '{"name": "f", "parameters": {'])


@settings(deadline=None, max_examples=300)
@example(HERMES, ["<tool_call>", '{"name": "f", "arguments": {', "}", "}", "</tool_call>", " "], [13, 40])
@given(strategies.sampled_from((HERMES, MISTRAL, LLAMA)), strategies.lists(WORDS, max_size=30),
       strategies.lists(strategies.integers(0, 200), max_size=10))
def test_cuts_change_nothing(form: CallFormat, words: list[str], cuts: list[int]) -> None:
    text = "".join(words)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(bounds)]
    whole = parse(form, text)
    assert parse(form, *pieces) == whole
    assert parse(form, *text) == whole
    numbers = [delta.index for delta in whole if isinstance(delta, CallBegin)]
    assert numbers == list(range(len(numbers)))
    if not numbers:
        assert whole == [Content(text)] * bool(text)


@pytest.mark.parametrize(("template", "name"), [
    ('<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call>', "hermes"),
    ('{{- "<tool_call>\n" }}{"name": {{ name }}, "arguments": {{ arguments }}}', None),
    ("""{{- '<tool_call>\\n{"name": "' }}""", "hermes"),
    ("<tool_call>\\n<function=example_function_name>", "qwen3_coder"),
    ("<tool_call>{function-name}\\n<arg_key>", "glm45"),
    ('{{- "[TOOL_CALLS] [" }}', "mistral"),
    ('{{- "[TOOL_CALLS][" }}', "mistral"),
    ('{{- "[TOOL_CALLS]" + name + "[ARGS]" }}', "mistral"),
    ("""{{- 'Respond in the format {"name": function name, "parameters": dictionary of values}.' }}""", "llama"),
    ("{% for m in messages %}{{ m.content }}{% endfor %}", None),
])
def test_what_a_template_teaches(template: str, name: str | None) -> None:
    form = native_format(template)
    assert (form and form.name) == name
