"""Grammars of calls in each family's own form: what they accept, what they refuse, and that it is read as it was
meant."""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from penstock.router.chat.deltas import Arguments, CallBegin
from penstock.router.chat.tools.call_format import NAME, CallFormat, Keywords, Tagged
from penstock.router.chat.tools.families import FORMATS, named_format
from penstock.router.chat.tools.grammar import tools_grammar
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.grammar.compiler import MAX_SOURCE, GrammarCompiler
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from tests.router.chat.tools.calls import (
    WORDS,
    calls_of,
    content_of,
    draw_calls,
    draw_tools,
    offer_of,
    one,
    parse,
    words_of,
    written,
)
from tests.router.grammar.grammar_driver import accepts, draw, make_compiler

OF = {form.models: form for form in FORMATS}
XML, PYTHON, HERMES, MISTRAL, KIMI = (
    named_format(name, "") for name in ("qwen3_coder", "pythonic", "hermes", "mistral", "kimi_k2"))
QUICK = ("hermes", "mistral", "llama3_json", "pythonic", "qwen3_coder", "glm45", "deepseek_v31", "kimi_k2")
"""Names of forms of each kind; the others are tried by slow tests."""
EACH = [pytest.param(models, marks=() if set(QUICK) & set(form.names) else pytest.mark.slow)
        for models, form in OF.items()]
LARK = GrammarSpec("lark", 'start: "*** begin\\n" LINE+ "*** end"\nLINE: /[a-z]+\\n/')
REGEX = GrammarSpec("regex", "[a-z]+-[0-9]{2}")
INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = make_compiler()
    yield compiler
    compiler.close()


async def accepted(compiler: GrammarCompiler, form: CallFormat, tools: list[Tool], *texts: str) -> list[bool]:
    """Which texts are answers that must call one of the tools."""
    grammar = await compiler.compile(tools_grammar(form, Offer(tuple(tools), must_call=True)))
    return [accepts(grammar, text) for text in texts]


@pytest.mark.parametrize("models", OF)
async def test_calls_as_models_write_them_are_accepted(compiler: GrammarCompiler, models: str) -> None:
    form, dice = OF[models], random.Random(models)
    for _ in range(2):
        tools = draw_tools(dice)
        calls = draw_calls(dice, tools, [*WORDS[:10], "{", "(", "<", "]"], 2)
        for _, arguments in calls:
            arguments.update({key: 2**50 for key, value in arguments.items() if value == 2**62})
        text = written(form, *calls)
        assert await accepted(compiler, form, list(offer_of(tools).tools), text, text + "x", text[:-1], "No.") == [
            True, False, False, False], text
        free = await compiler.compile(tools_grammar(form, offer_of(tools)))
        prose = form.prose.removeprefix(form.opened)
        before = f"{prose}So:\n{form.opened}" if form.marker else ""
        texts = [text, before + text, f"{prose}No.", before + text + "x"]
        assert [accepts(free, each) for each in texts] == [True, True, True, False], text


def test_many_tools_fit_into_a_grammar() -> None:
    kinds = ("string", "integer", "object", "boolean", "array")
    schema = {"type": "object", "required": ["p0"],
              "properties": {f"p{number}": {"type": kind} for number, kind in enumerate(kinds)}}
    tools = tuple(Tool(f"tool_{number}", None, schema) for number in range(128))
    for form in FORMATS:
        assert len(tools_grammar(form, Offer(tools)).source) < MAX_SOURCE, form.models


SCHEMA: dict[str, Any] = {
    "type": "object", "required": ["kind", "when"], "$defs": {"point": {
        "type": "object", "properties": {"x": {"type": "integer"}, "next": {"$ref": "#/$defs/point"}}}},
    "properties": {"note": {"type": "string"}, "kind": {"enum": ["a b", "c"]}, "when": {"type": ["integer", "null"]},
                   "points": {"type": "array", "items": {"$ref": "#/$defs/point"}}, "exact": {"type": "boolean"}}}


@pytest.mark.parametrize("models", EACH)
async def test_what_a_schema_says_is_demanded(compiler: GrammarCompiler, models: str) -> None:
    form, tool = OF[models], Tool("f", None, SCHEMA, is_strict=True)
    good: list[dict[str, Any]] = [
        {"kind": "c", "when": 1}, {"note": "x", "kind": "a b", "when": None, "exact": True},
        {"kind": "c", "when": 1, "points": [{"x": 1, "next": {"x": 2}}, {}]}]
    bad: list[dict[str, Any]] = [
        {"kind": "c"}, {"kind": "d", "when": 1}, {"kind": "c", "when": True}, {"kind": "c", "when": 1, "other": 2},
        {"kind": "c", "when": 1, "points": [{"x": "1"}]}, {"kind": "c", "when": 1, "points": {}}]
    texts = [written(form, ("f", arguments)) for arguments in (*good, *bad)]
    assert await accepted(compiler, form, [tool], *texts) == [True] * len(good) + [False] * len(bad)


@pytest.mark.parametrize("models", [models for models, form in OF.items() if form.arguments is not None])
async def test_answers_drawn_from_a_grammar_are_read(compiler: GrammarCompiler, models: str) -> None:
    note = {"note": {"type": "string", "maxLength": 9}}
    form, schema = OF[models], {**SCHEMA, "properties": {**SCHEMA["properties"], **note}}
    tools = (Tool("f", None, schema), Tool("g", None, {}))
    grammar = await compiler.compile(tools_grammar(form, Offer(tools, must_call=True)))
    dice, num_read = random.Random(1), 0
    for _ in range(30):
        text = draw(grammar, dice, 300)
        if text is None:
            continue
        calls = calls_of(parse(form, *text, offer=Offer(tools)))
        assert calls
        num_read += len(calls)
        for name, arguments in calls:
            assert name == "g" or {"kind", "when"} <= arguments.keys() <= schema["properties"].keys()
    assert num_read


BOUND = Tool("edit", None, {
    "type": "object", "required": ["path", "any"], "additionalProperties": False, "properties": {
        "path": {"type": "string"}, "n": {"type": "integer"}, "text": {"type": ["string", "null"]}, "any": {},
        "list": {"type": "array", "items": {"type": "string"}}, "map": {"type": "object"},
        "one": {"enum": ["a", 1, None, "b c"]}, "is": {"type": ["boolean", "null"]}}})


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("models", EACH)
async def test_texts_of_the_form_in_values(compiler: GrammarCompiler, models: str, is_marked: bool) -> None:
    """A model may write tags, marks and calls as texts: each call is read as the grammar has it for all that."""
    form, dice = OF[models], random.Random(models)
    mark_ids = {form.marker: 1} if is_marked and form.marker != form.opened else {}
    call = one(form, "edit", {"path": "x", "any": 1, "n": 2})
    words = [*words_of(form), form.begin, call, one(form, "other", {}), written(form, ("other", {})), " ", "\n"]
    if isinstance(form.arguments, Tagged):
        words += [call[call.rindex(form.arguments.shut):], " " + call[call.index(form.arguments.shut):]]
    for must_call in (False, True):
        offer = Offer((BOUND,), must_call)
        grammar = await compiler.compile(tools_grammar(form, offer, mark_ids))
        for _ in range(5):
            text = draw(grammar, dice, 120, words)
            if text is None:
                continue
            deltas = parse(form, text.replace("<|im_start|>", form.marker), offer=offer)
            calls = calls_of(deltas)
            assert len(calls) == sum(isinstance(delta, CallBegin) for delta in deltas), text
            for name, arguments in calls:
                assert name == "edit"
                jsonschema.validate(arguments, BOUND.parameters)
            assert not must_call or (calls and not content_of(deltas)), text


@pytest.mark.parametrize("value", [
    'a</parameter>\n</function>', 'a</parameter> <parameter=n>\n1', 'a</parameter>\n</tool_call>'])
async def test_a_text_that_would_be_an_end_is_none_of_a_string(compiler: GrammarCompiler, value: str) -> None:
    texts = [written(XML, ("edit", {"path": text, "any": 1})) for text in ("</parameter> <b>", value)]
    assert await accepted(compiler, XML, [BOUND], *texts) == [True, False]
    listed = written(XML, ("edit", {"path": "", "any": 1, "list": [value.replace("\n", " "), "\\"]}))
    assert await accepted(compiler, XML, [BOUND], listed) == [True]
    for pieces in ([listed], list(listed)):
        assert calls_of(parse(XML, *pieces, offer=Offer((BOUND,))))[0][1]["list"] == [value.replace("\n", " "), "\\"]


FREE_KEYS = ("a-b", "$f", "a.b", "@type")


@pytest.mark.parametrize("key", [*FREE_KEYS, "a b", "a>b", 'a"b', "", " a ", "1", "a\nb", "a=b"])
@pytest.mark.parametrize("name", ["pythonic", "qwen3_coder", "deepseek_v32", "glm45", "hermes"])
async def test_names_of_parameters(compiler: GrammarCompiler, name: str, key: str) -> None:
    """Those that calls can't have are left out or refused, and never demanded."""
    form = named_format(name, "")
    tool = Tool("f", None, {"properties": {"x": {"type": "string"}, key: {"type": "string"}}, "required": [key]})
    call, other = ("f", {key: "v"}), written(form, ("f", {"x": "v"}))
    if key in FREE_KEYS or name == "hermes" or (key in ("1", "a b", "a=b") and name != "pythonic"):
        assert await accepted(compiler, form, [tool], written(form, call), other) == [True, False]
        assert calls_of(parse(form, written(form, call), offer=Offer((tool,)))) == [call]
        return
    lax = Tool("f", None, {"properties": tool.parameters["properties"]})
    assert await accepted(compiler, form, [lax], other) == [True]
    for each in (tool, dataclasses.replace(lax, is_strict=True)):
        with pytest.raises(GrammarError, match="can't have a parameter of the name"):
            tools_grammar(form, Offer((each,)))


@pytest.mark.parametrize("schema", [
    {"properties": {"a": {"$ref": []}}}, {"properties": {"a": {"$ref": {}}}}, {"properties": {"a": {}}, "required": 5},
    {"properties": {"a": {"type": "string", "enum": 5}}}, {"properties": {"a": {"type": "string", "enum": []}}},
    {"properties": {"a": {"type": "string", "minLength": "0}/ | /x"}}}, {"properties": []},
    {"properties": {"a": {"type": "object", "properties": {"x": {}}, "required": 7}}},
    {"properties": {"a": {"anyOf": [1, {}]}}}, {"properties": {"a": {"type": {}}}}, {"$defs": 5},
    {"properties": {"a": {"type": []}}}], ids=str)
@pytest.mark.parametrize("name", ["pythonic", "qwen3_coder", "deepseek_v32", "hermes"])
async def test_schemas_of_no_form_bind_nothing(compiler: GrammarCompiler, name: str, schema: Any) -> None:
    form = named_format(name, "")
    await compiler.compile(tools_grammar(form, Offer((Tool("f", None, schema),), must_call=True)))


def nested(depth: int, key: str) -> dict[str, Any]:
    """A schema with others in it, each in the keyword of this name."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": ["array" if key == "items" else "object"] * 2, key: schema}
    return schema


CHAIN = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(3000)}


@pytest.mark.parametrize(("schema", "is_too_deep"), [
    (nested(60, "additionalProperties"), False), (nested(240, "items"), True), ({"$ref": "#/$defs/d0"}, True)],
    ids=["objects", "lists", "references"])
async def test_schemas_in_schemas_take_little_room(
        compiler: GrammarCompiler, schema: dict[str, Any], is_too_deep: bool) -> None:
    """As Python writes arguments; of those that are too deep nothing binds but in strict tools, which are refused."""
    defs = {"$defs": CHAIN} if "$ref" in schema else {}
    tool = Tool("f", None, {"properties": {"a": schema}, "required": ["a"], **defs})
    form = named_format("pythonic", "")
    grammar = tools_grammar(form, Offer((tool,), must_call=True))
    assert len(grammar.source) < 5000
    await compiler.compile(grammar)
    if is_too_deep:
        with pytest.raises(GrammarError, match="at most 64 levels deep"):
            tools_grammar(form, Offer((dataclasses.replace(tool, is_strict=True),)))


@pytest.mark.parametrize(("schema", "good", "bad"), [
    ({"type": ["string", "null"], "enum": ["a", None]}, ["a", "null"], ["b", '"a"']),
    ({"anyOf": [{"$ref": "#/$defs/e"}, {"type": "null"}]}, ["a", "null"], ["c", "1"]),
    ({"$ref": "#/$defs/e", "description": "It."}, ["a", "b"], ["c"]),
    ({"allOf": [{"$ref": "#/$defs/e"}]}, ["a"], ["c"]),
    ({"enum": ["a", 1, {"b": 2}]}, ["a", "1", '{"b":2}'], ["2", "b"]),
    ({"enum": ["a", "b"]}, ["a"], ["c", "a b", ""]), ({"const": "a<b"}, ["a<b"], ["a"]),
    ({"type": "string", "pattern": "^[a-c]+$"}, ["abc"], ["abd", ""]),
    ({"type": "string", "pattern": "b"}, ["abc", "b\n"], ["acd"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "a\nb"], ["a", "abcd"]),
    ({"type": "string"}, ["", "a\n", "<b>", '"'], []), ({}, ["1", "a b"], []),
    ({"type": ["string", "null"]}, ["null", "x"], []), ({"type": "integer", "maximum": 9}, ["5"], ["10", "a"]),
], ids=str)
async def test_strings_between_tags(compiler: GrammarCompiler, schema: Any, good: list[str], bad: list[str]) -> None:
    tool = Tool("f", None, {"properties": {"a": schema}, "required": ["a"], "$defs": {"e": {"enum": ["a", "b"]}}},
                is_strict=True)
    texts = [f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
             for text in (*good, *bad)]
    assert await accepted(compiler, XML, [tool], *texts) == [True] * len(good) + [False] * len(bad)


async def test_a_closing_tag_that_is_a_token(compiler: GrammarCompiler) -> None:
    """The demo model's special token stands in for it, and for the marker."""
    tool = Tool("f", None, {"properties": {"a": {"type": "string"}}, "required": ["a"]})
    mark = "<|im_start|>"
    call = "<tool_call>\n<function=f>\n<parameter=a>\nx</b>\n</parameter>\n</function>\n</tool_call>"
    for text in ("</parameter>", "<tool_call>"):
        grammar = await compiler.compile(tools_grammar(XML, Offer((tool,), must_call=True), {text: 1}))
        assert accepts(grammar, call.replace(text, mark))
        assert not accepts(grammar, call)


@pytest.mark.parametrize(("form", "schema", "words"), [
    (XML, {"type": "string", "format": "date"}, "`format` is not supported for strings in this model's calls"),
    (XML, {"type": "string", "pattern": "("}, "the function 'f': "),
    (PYTHON, {"type": "string", "pattern": "a"}, "`pattern` is not supported in this model's calls"),
], ids=str)
async def test_what_can_not_be_demanded(compiler: GrammarCompiler, form: CallFormat, schema: Any, words: str) -> None:
    parameters = {"properties": {"a": schema}, "required": ["a"]}
    with pytest.raises(GrammarError, match=words):
        tools_grammar(form, Offer((Tool("f", None, parameters, is_strict=True),)))
    text = written(form, ("f", {"a": "x"}))
    assert await accepted(compiler, form, [Tool("f", None, parameters)], text) == [True]


@pytest.mark.parametrize("name", ["a b", "a>", "a\nb", ""])
def test_names_that_can_not_be_written_without_quotes(name: str) -> None:
    offer = Offer((Tool(name, None, {}),))
    with pytest.raises(GrammarError, match="this model's calls have letters, digits"):
        tools_grammar(XML, offer)
    tools_grammar(HERMES, offer)


@pytest.mark.parametrize("grammar", [LARK, REGEX], ids=lambda grammar: grammar.kind)
@pytest.mark.parametrize("models", EACH)
async def test_custom_tools(compiler: GrammarCompiler, models: str, grammar: GrammarSpec) -> None:
    """Their text follows the grammar wherever a call can hold it, and comes raw."""
    form, tool = OF[models], Tool("patch", None, INPUT, is_custom=True, is_strict=True, grammar=grammar)
    good, bad = ("*** begin\nab\n*** end", "*** begin\n*** end") if grammar is LARK else ("ab-12", "ab-1")
    can_not = form.raw_close is None and (isinstance(form.arguments, Keywords) or (
        form.arguments is None and grammar is LARK))
    if can_not:
        with pytest.raises(GrammarError, match="the format of the custom tool 'patch': this model's calls can't hold"):
            tools_grammar(form, Offer((tool,)))
        lax = [Tool("patch", None, INPUT, is_custom=True, grammar=grammar)]
        texts = [written(form, ("patch", {"input": text})) for text in (good, bad)]
        assert await accepted(compiler, form, lax, *texts) == [True, True]
    elif isinstance(form.arguments, Tagged) or form.raw_close is None:
        texts = [written(form, ("patch", {"input": text})) for text in (good, bad)]
        assert await accepted(compiler, form, [tool], *texts) == [True, False]
    else:
        begin = form.begin.removeprefix(form.opened)
        texts = [begin + one(form, "patch", text) + form.end for text in (good, bad)]
        assert await accepted(compiler, form, [tool], *texts) == [True, False]
    deltas = parse(form, *texts[0], offer=Offer((tool,)))
    assert [delta.text for delta in deltas if isinstance(delta, Arguments)] == [good]


def test_forms_with_names_in_quotes_take_any_name() -> None:
    for form in FORMATS:
        if NAME in form.header:
            assert "call:" in tools_grammar(form, Offer((Tool('a "b" & ~c', None, {}),))).source
