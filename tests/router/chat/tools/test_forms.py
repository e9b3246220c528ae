"""Every format: random calls, written by its description, are read as they were meant, however the text is cut."""

import random
import time
from typing import get_args

import pytest

from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content
from penstock.router.chat.tools.call_format import CallFormat
from penstock.router.chat.tools.families import FORMATS, NAMES, named_format
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.chat.tools.parser import CallParser
from penstock.router.chat.tools.value_types import ALL, types_of
from penstock.system.settings import ServerSettings
from tests.router.chat.tools.calls import (
    calls_of,
    content_of,
    draw_calls,
    draw_tools,
    is_clear,
    offer_of,
    one,
    parse,
    words_of,
    written,
)

OF = {form.models: form for form in FORMATS}
XML, SEED, GLM = (named_format(name, "") for name in ("qwen3_coder", "seed_oss", "glm45"))
KIMI, PYTHON, DSML = (named_format(name, "") for name in ("kimi_k2", "pythonic", "deepseek_v32"))


@pytest.mark.parametrize("models", OF)
def test_random_calls(models: str) -> None:
    form, dice = OF[models], random.Random(models)
    num_read = 0
    while num_read < 12:
        tools = draw_tools(dice)
        offer, calls = offer_of(tools), draw_calls(dice, tools, words_of(form), 3)
        if not is_clear(form, calls):
            continue
        text = written(form, *calls)
        deltas = parse(form, text, offer=offer)
        assert calls_of(deltas) == calls
        assert content_of(deltas) == ""
        assert parse(form, *text, offer=offer) == deltas
        half = dice.randrange(len(text))
        assert parse(form, text[:half], text[half:], offer=offer) == deltas
        num_read += 1


@pytest.mark.parametrize("models", [models for models, form in OF.items() if form.marker and not form.prose])
def test_text_before_and_behind(models: str) -> None:
    form = OF[models]
    text = written(form, ("f", {"a": "b"}))
    deltas = parse(form, f"So:\n\n{text}")
    assert (content_of(deltas), calls_of(deltas)) == ("So:", [("f", {"a": "b"})])
    assert parse(form, *f"So:\n\n{text}") == deltas
    if form.end or form.close:
        deltas = parse(form, f"{text} Done.")
        assert (content_of(deltas).strip(), calls_of(deltas)) == ("Done.", [("f", {"a": "b"})])


@pytest.mark.parametrize("models", OF)
def test_a_cut_anywhere_loses_nothing(models: str) -> None:
    """An answer may end within a call: it is text, or the arguments are as far as they came."""
    form = OF[models]
    text = written(form, ("f", {"a": "b"}), ("g", {}))
    for end in range(len(text)):
        deltas = parse(form, text[:end])
        ended = sum(isinstance(delta, CallEnd) for delta in deltas)
        begun = sum(isinstance(delta, CallBegin) for delta in deltas)
        assert begun - ended in (0, 1)
        assert begun or content_of(deltas) == text[:end]


def test_the_launcher_takes_each_name() -> None:
    taken = get_args(get_args(ServerSettings.__annotations__["tool_call_parser"])[0])
    assert taken == ("auto", *NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_a_format(name: str) -> None:
    assert name in named_format(name, "").names


def test_names_that_several_formats_have() -> None:
    assert named_format("mistral", "[TOOL_CALLS][").end == "]"
    assert named_format("mistral", "'[TOOL_CALLS]' + name + '[ARGS]'").end == ""
    assert named_format("mistral", "").end == "]"


@pytest.mark.parametrize(("schema", "value", "expected"), [
    ({"type": "string"}, "12", '"12"'), ({"type": "integer"}, "12", "12"), ({"type": "integer"}, "many", '"many"'),
    ({"type": "boolean"}, "True", "true"), ({"type": "boolean"}, "false", "false"), ({"type": "null"}, "None", "null"),
    ({"type": ["string", "null"]}, "null", "null"), ({"type": ["string", "null"]}, "12", '"12"'),
    ({"type": "array"}, "[1.5, None, {'a': True}]", '[1.5, null, {"a": true}]'),
    ({"type": "object"}, '{"a":1}', '{"a":1}'), ({"type": "object"}, "{'a'", '"{\'a\'"'),
    ({}, "12", "12"), ({}, "a b", '"a b"'), ({}, '"a"', '"\\"a\\""'), ({"enum": ["1", "2"]}, "1", '"1"'),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x", '"x"'), ({"$ref": "#/$defs/t"}, "1", '"1"'),
    ({"$ref": "#/$defs/loop"}, "1", "1"), ({"type": "number"}, "NaN", '"NaN"'), (True, "1", "1"),
    ({}, "a: b", '"a: b"'), ({}, ":", '":"'), ({"type": "integer"}, "1:2", '"1:2"'), ({}, "1\u0661", "11"),
], ids=str)
def test_values_as_text_have_the_types_of_the_schema(schema: object, value: str, expected: str) -> None:
    parameters = {"properties": {"a": schema}, "$defs": {"t": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}}
    offer = Offer((Tool("f", None, parameters),))
    text = f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
    expected = f'{{"a": {expected}}}'
    for pieces in ([text], list(text)):
        assert parse(XML, *pieces, offer=offer) == [CallBegin(0, "f"), Arguments(0, expected), CallEnd(0)]


def test_types_of_schemas_that_refer_to_each_other_take_little_time() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}}}
    start = time.process_time()
    assert types_of(schema["properties"]["a"], schema) == ALL
    assert time.process_time() - start < 1


def test_strings_come_as_they_are_written() -> None:
    offer = Offer((Tool("f", None, {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}),))
    parser = CallParser(XML, offer)
    assert parser.push("<tool_call>\n<function=f>\n<par") == []
    assert parser.push("ameter=a>\n") == [CallBegin(0, "f"), Arguments(0, '{"a": "')]
    assert parser.push('He said "no"') == [Arguments(0, 'He said \\"no\\"')]
    assert parser.push("\n") == []
    assert parser.push("</par") == []
    assert parser.push("ent>") == [Arguments(0, "\\n</parent>")]
    assert parser.push("\n</parameter>\n<") == []
    assert parser.push("parameter=b>\n1") == [Arguments(0, '", "b": ')]
    assert parser.push("2\n</parameter>\n</function>") == [Arguments(0, "12}"), CallEnd(0)]
    assert parser.push("\n</tool_call>") == []
    assert parser.finish() == []


@pytest.mark.parametrize(("form", "text", "expected"), [
    (XML, "<tool_call>\n<function=f>\n</function>\n</tool_call>", "{}"),
    (XML, "<tool_call><function=f><parameter=a>b</parameter></function></tool_call>", '{"a": "b"}'),
    (XML, "<tool_call>\n<function=f>\n<parameter=a>\nx </parameter> y\n</parameter>\n</tool_call>",
     '{"a": "x </parameter> y"}'),
    (GLM, "<tool_call>f</tool_call>", "{}"),
    (GLM, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value> b\n</arg_value>\n</tool_call>", '{"a": " b\\n"}'),
    (DSML, '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="false">1'
     '</｜DSML｜parameter>\n<｜DSML｜parameter name="b" string="true">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
     "</｜DSML｜function_calls>", '{"a": 1, "b": "1"}'),
    (PYTHON, "[f()]", "{}"), (PYTHON, " [f(a=1, )]", '{"a": 1}'),
    (PYTHON, r"""[f(a='it\'s', b="\u00e4\x41\n\d", c='''x'y''', d=(1,), e={1: None, "k": [True,]}, f=-.5, g=1_000)]""",
     '{"a": "it\'s", "b": "\\u00e4A\\n\\\\d", "c": "x\'y", "d": [1], "e": {"1": null, "k": [true]}, "f": -0.5, '
     '"g": 1000}'),
    (PYTHON, "<|python_start|>[f(a=\"b\")]<|python_end|>", '{"a": "b"}'),
    (KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>f:12<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>", "{}"),
], ids=str)
def test_other_ways(form: CallFormat, text: str, expected: str) -> None:
    deltas = parse(form, *text)
    assert [delta.text for delta in deltas if isinstance(delta, Arguments)] == [expected]
    assert isinstance(deltas[-1], CallEnd)
    assert parse(form, text) == deltas


@pytest.mark.parametrize(("form", "text"), [
    (XML, "<tool_call>\n<function=f>\nNo."), (XML, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'),
    (GLM, "<tool_call> and so on"), (GLM, "<tool_call>f is a function</tool_call>"), (PYTHON, "[1, 2]"),
    (PYTHON, "[f(1)]"), (PYTHON, "[f(x) for x in y]"), (PYTHON, "[see](https://a.b)"), (KIMI, "<|tool_calls_section_"),
    (KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>call_1<|tool_call_argument_begin|>{}<|tool_call_end|>"),
], ids=str)
def test_what_is_no_call_is_text(form: CallFormat, text: str) -> None:
    assert parse(form, *text) == parse(form, text) == [Content(text)]


@pytest.mark.parametrize("rest", ["2)]", ":2)]", "]", "{:}", "x" * 1025 + ")]"])
def test_python_that_is_broken_ends_the_call(rest: str) -> None:
    deltas = parse(PYTHON, *f"[f(a=1 {rest}")
    assert deltas == [CallBegin(0, "f"), Arguments(0, '{"a": 1'), Content(rest)]


def test_ids_that_the_model_wrote() -> None:
    for name, ids in (("kimi_k2", ["functions.f:0", "functions.g:1"]), ("cohere", [None, None])):
        deltas = parse(named_format(name, ""), written(named_format(name, ""), ("f", {}), ("g", {})))
        assert [delta.id for delta in deltas if isinstance(delta, CallBegin)] == ids
    form = named_format("mistral", "[CALL_ID]")
    deltas = parse(form, "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]g[ARGS]{}")
    assert [delta.id for delta in deltas if isinstance(delta, CallBegin)] == ["abcdefghi", None]


def test_a_prompt_that_has_opened_a_call() -> None:
    """Functionary 3.2's prompts end with the mark of a call, and text is a call of `all`."""
    form = named_format("functionary_v3_2", "")
    assert parse(form, *"all\nHi.>>>f\n{}") == [
        Content("Hi."), CallBegin(0, "f"), Arguments(0, "{}"), CallEnd(0)]
    assert parse(form, *"f\n{}") == [CallBegin(0, "f"), Arguments(0, "{}"), CallEnd(0)]
    assert parse(form, *"Hi >>> you") == [Content("Hi >>> you")]
    assert parse(form) == []


TEXT = 'a\n"b" \\ {c} ä\U0001f600'


@pytest.mark.parametrize("models", OF)
def test_custom_tools(models: str) -> None:
    """Their text comes as it is, whether the call has it raw or as an argument."""
    form = OF[models]
    offer = Offer((Tool("patch", None, {"properties": {"input": {"type": "string"}}}, is_custom=True),))
    expected = [CallBegin(0, "patch"), Arguments(0, TEXT), CallEnd(0)]
    texts = [written(form, ("patch", {"input": TEXT}))]
    if form.raw_close is not None:
        texts.append(form.begin.removeprefix(form.opened) + one(form, "patch", TEXT) + form.end)
    for text in texts:
        for pieces in ([text], list(text)):
            deltas = parse(form, *pieces, offer=offer)
            expected[0] = deltas[0]
            assert deltas == expected
    assert parse(form, *texts[-1].replace("patch", "other"), offer=offer) != expected
