"""Grammars of answers with tools: what they accept, and that the parser reads all of it as it was meant."""

import dataclasses
import random
from collections.abc import Iterator

import jsonschema
import pytest

from penstock.router.chat.deltas import CallBegin
from penstock.router.chat.tools import schemas as module
from penstock.router.chat.tools.call_format import NAME, CallFormat
from penstock.router.chat.tools.families import FORMATS
from penstock.router.chat.tools.grammar import tools_grammar
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from tests.router.chat.tools.calls import calls_of, content_of, one, parse
from tests.router.grammar.grammar_driver import accepts, draw, make_compiler

TOOLS = (
    Tool("weather", "Of a city.", {
        "properties": {"city": {"enum": ["Rome", "Köln & ~", '"}]']}, "days": {"type": "integer", "maximum": 20,
                                                                              "minimum": 1}},
        "required": ["city"]}),
    Tool('a "b" & ~c', None, {"type": "object", "properties": {"is": {"type": "boolean"}}}),
    Tool("none", None, {"type": "object", "properties": {}}),
)
BARE_TOOLS = (TOOLS[0], dataclasses.replace(TOOLS[1], name="a-b.c/d"), TOOLS[2])
HERMES = next(form for form in FORMATS if form.name == "hermes")


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = make_compiler()
    yield compiler
    compiler.close()


JSON_FORMS = [form for form in FORMATS if form.name in ("hermes", "mistral", "llama", "xlam", "deepseek_v3")
              and NAME in form.header]
"""Forms in which a name may be any text."""


@pytest.mark.parametrize("form", JSON_FORMS, ids=lambda form: form.models)
async def test_what_is_accepted(compiler: GrammarCompiler, form: CallFormat) -> None:
    first = one(form, "weather", '{"city": "Rome"}')
    other = one(form, 'a "b" & ~c', '{"is":true}')
    single, both = form.begin + first + form.end, form.begin + first + form.separator + other + form.end
    broken = [form.begin + one(form, "weather", "{}") + form.end, form.begin + one(form, "other", "{}") + form.end,
              form.begin + one(form, "weather", '{"city": "Oslo"}') + form.end]
    texts = ["Hi.", "", '{"a": 1}', '{"name"', single, both, *broken, single + "x"]

    async def accepted(offer: Offer) -> list[str]:
        grammar = await compiler.compile(tools_grammar(form, offer))
        return [text for text in texts if accepts(grammar, text)]

    assert await accepted(Offer(TOOLS)) == ["Hi.", "", '{"a": 1}', '{"name"', single, both]
    assert await accepted(Offer(TOOLS, is_parallel=False)) == ["Hi.", "", '{"a": 1}', '{"name"', single]
    assert await accepted(Offer(TOOLS, must_call=True)) == [single, both]
    assert await accepted(Offer(TOOLS, must_call=True, is_parallel=False)) == [single]
    if form.marker:
        grammar = await compiler.compile(tools_grammar(form, Offer(TOOLS)))
        assert accepts(grammar, "So:\n" + single)
        assert not accepts(grammar, "So:\n" + form.begin + "nothing")


@pytest.mark.parametrize("form", [form for form in JSON_FORMS if form.marker], ids=lambda form: form.name)
@pytest.mark.parametrize("spec", [
    GrammarSpec("json", '{"properties": {"a": {"const": "~&<"}}, "required": ["a"]}'),
    GrammarSpec("regex", r'\{"a":"~&[<]"\}'), GrammarSpec("lark", 'start: "{" a\na: /"a":/ "\\"~&<\\"}"')],
    ids=lambda spec: spec.kind)
async def test_a_call_or_another_form(compiler: GrammarCompiler, form: CallFormat, spec: GrammarSpec) -> None:
    single = form.begin + one(form, "weather", '{"city": "Rome"}') + form.end
    grammar = await compiler.compile(tools_grammar(form, Offer(TOOLS), form=spec))
    texts = ['{"a":"~&<"}', single, "Hi.", "", "{}", '{"a":"~&<"}' + single, "So: " + single,
             form.begin + one(form, "other", "{}") + form.end]
    assert [text for text in texts if accepts(grammar, text)] == ['{"a":"~&<"}', single]


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("must_call", [False, True])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.models)
async def test_the_parser_reads_what_the_grammar_accepts(
    compiler: GrammarCompiler, form: CallFormat, must_call: bool, is_marked: bool
) -> None:
    """Answers of a model that takes any allowed token, with a bias to ends. A special token stands in for a marker."""
    offer = Offer(TOOLS if NAME in form.header else BARE_TOOLS, must_call)
    mark_ids = {form.marker: 1} if is_marked and form.marker != form.opened else {}
    grammar = await compiler.compile(tools_grammar(form, offer, mark_ids))
    dice, num_calls = random.Random(0), 0
    schemas = {tool.name: tool.parameters for tool in offer.tools}
    for _ in range(8):
        text = draw(grammar, dice, 250)
        if text is None:
            continue
        deltas = parse(form, text.replace("<|im_start|>", form.marker), offer=offer)
        calls = calls_of(deltas)
        for name, arguments in calls:
            jsonschema.validate(arguments, {"type": "object", **schemas[name]})
        assert len(calls) == sum(isinstance(delta, CallBegin) for delta in deltas)
        assert must_call <= bool(calls)
        assert not (must_call and content_of(deltas))
        num_calls += len(calls)
    assert num_calls or not must_call


@pytest.mark.parametrize(("part", "words"), [
    ({"not": {}}, "`not` is not supported"),
    ({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}, "`oneOf` is supported only where"),
    ({"type": "string", "pattern": "^(?!a)"}, "`pattern`: regex parse error"),
    ({"type": 5}, "type must be a string or array of strings"),
], ids=str)
def test_schemas_that_cannot_be_compiled(part: dict[str, object], words: str) -> None:
    schema = {"type": "object", "properties": {"a": part}}
    lax = tools_grammar(HERMES, Offer((Tool("f", None, schema),)))
    assert lax == tools_grammar(HERMES, Offer((Tool("f", None, {}),)))
    with pytest.raises(GrammarError, match=f"the parameters of the function 'f': {words}"):
        tools_grammar(HERMES, Offer((Tool("f", None, schema, is_strict=True),)))


def test_a_schema_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients offer the same tools with every request of a conversation."""
    checked: list[str] = []

    def check(prepared: str) -> None:
        checked.append(prepared)
        if "broken" in prepared:
            raise GrammarError("a fault")

    monkeypatch.setattr(module, "check_schema", check)
    schema = {"type": "object", "properties": {"checked_once": {"type": "integer"}}}
    first = tools_grammar(HERMES, Offer((Tool("f", None, schema), Tool("g", None, schema))))
    assert tools_grammar(HERMES, Offer((Tool("f", "Other words.", schema), Tool("g", None, schema)))) == first
    assert len(checked) == 1
    broken = {"type": "object", "properties": {"broken": {"type": "integer"}}}
    for name in ("f", "g"):
        assert "broken" not in tools_grammar(HERMES, Offer((Tool(name, None, broken),))).source
        with pytest.raises(GrammarError, match=f"the function '{name}': a fault"):
            tools_grammar(HERMES, Offer((Tool(name, None, broken, is_strict=True),)))
    assert len(checked) == 2


def test_a_remembered_refusal_holds_on_to_nothing_else() -> None:
    outcome = module._check_once('{"type": "no type at all"}')
    assert isinstance(outcome, GrammarError)
    assert (outcome.__traceback__, outcome.__cause__, outcome.__context__) == (None, None, None)


def test_few_schemas_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_schema", lambda prepared: None)
    for number in range(2 * module.MAX_CHECKED):
        schema = {"type": "object", "properties": {f"remembered_{number}": {}}}
        tools_grammar(HERMES, Offer((Tool("f", None, schema),)))
    assert module._check_once.cache_info().currsize == module.MAX_CHECKED
    long = {"type": "object", "properties": {"a": {"const": "x" * (module.MAX_SOURCE + 1)}}}
    misses = module._check_once.cache_info().misses
    tools_grammar(HERMES, Offer((Tool("f", None, long),)))
    assert module._check_once.cache_info().misses == misses
