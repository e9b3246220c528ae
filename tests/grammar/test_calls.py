import json
from dataclasses import replace

import pytest

from router.grammar.calls import HERMES, LLAMA, MISTRAL, TGI, Tool, lark_of_calls
from router.grammar.matcher import GrammarError
from tests.grammar.drive import TOKENIZER, accepts_of

TOOLS = [
    Tool("weather", {"type": "object", "required": ["city"], "$defs": {"days": {"type": "integer", "maximum": 7}},
                     "properties": {"city": {"type": "string"}, "days": {"$ref": "#/$defs/days"}}}),
    Tool("time"),
]
ROME = json.dumps({"name": "weather", "arguments": {"city": "Rome", "days": 3}})
COMPACT = '{"name":"time","arguments":{}}'
WRONG = [
    '{"name": "weather", "arguments": {"days": 3}}', '{"name": "weather", "arguments": {"city": 1}}',
    '{"name": "other", "arguments": {}}', '{"name": "time"}', '{"name": "time", "arguments": 1}',
    '{"name": "weather", "arguments": {"city": "Rome", "days": 8}}', '{"name":  "time", "arguments": {}}']


def hermes(*calls: str) -> str:
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


async def test_hermes(compiler):
    spec = lark_of_calls(HERMES, TOOLS)
    assert all(await accepts_of(compiler, spec, hermes(ROME), hermes(COMPACT), hermes(ROME, COMPACT, ROME)))
    assert not any(await accepts_of(compiler, spec, "", "Hello", ROME, f"Hello {hermes(ROME)}", f"{hermes(ROME)}.",
                                    *map(hermes, WRONG)))


async def test_one_call(compiler):
    spec = lark_of_calls(HERMES, TOOLS, is_parallel=False)
    assert await accepts_of(compiler, spec, hermes(ROME), hermes(ROME, ROME)) == [True, False]


async def test_text_or_calls(compiler):
    spec = lark_of_calls(HERMES, TOOLS, is_required=False)
    texts = ["Hello", "a < b", "<tool", f"Sure.\n{hermes(ROME)}", hermes(ROME, COMPACT)]
    assert all(await accepts_of(compiler, spec, *texts))
    assert not any(await accepts_of(compiler, spec, "a <tool_call> b", *map(hermes, WRONG)))


async def test_llama(compiler):
    call = ROME.replace("arguments", "parameters")
    required = lark_of_calls(LLAMA, TOOLS)
    assert await accepts_of(compiler, required, call, call + call, ROME, "Hello") == [True, False, False, False]
    free = lark_of_calls(LLAMA, TOOLS, is_required=False)
    assert await accepts_of(compiler, free, call, "Hello {", '{"a":1}') == [True, True, False]


async def test_mistral(compiler):
    spec = lark_of_calls(MISTRAL, TOOLS)
    texts = [f"[TOOL_CALLS] [{ROME}]", f"[TOOL_CALLS] [{ROME}, {COMPACT}]", "[TOOL_CALLS] []", f"[{ROME}]"]
    assert await accepts_of(compiler, spec, *texts) == [True, True, False, False]


async def test_tgi(compiler):
    spec = lark_of_calls(TGI, TOOLS)
    assert all(await accepts_of(
        compiler, spec, '{"function":{"_name":"weather","city":"Rome"}}', '{"function": {"_name": "time"}}'))
    assert not any(await accepts_of(
        compiler, spec, '{"function":{"_name":"weather"}}', '{"function":{"city":"Rome","_name":"weather"}}',
        '{"function":{"_name":"other"}}', '{"_name":"time"}'))


async def test_a_special_token_opens_calls(compiler):
    """As the token alone, not as its letters."""
    marker = "<|im_end|>"
    form = replace(MISTRAL, begin=f"{marker}[")
    special_ids = {marker: TOKENIZER.token_to_id(marker)}
    required = lark_of_calls(form, TOOLS, special_ids=special_ids)
    assert await accepts_of(compiler, required, f"{marker}[{ROME}]", f"[{ROME}]") == [True, False]
    free = lark_of_calls(form, TOOLS, is_required=False, special_ids=special_ids)
    texts = ["Hello", f"{marker}[{ROME}]", f"Hello{marker}[{ROME}, {COMPACT}]", f"Hello{marker}", f"{marker}x"]
    assert await accepts_of(compiler, free, *texts) == [True, True, True, False, False]


async def test_names_and_keys_that_need_quoting(compiler):
    tool = Tool('a"b\\/c.d', {"type": "object", "properties": {'k"': {"enum": ["&~"]}}, "required": ['k"']})
    call = json.dumps({"name": tool.name, "arguments": {'k"': "&~"}})
    assert await accepts_of(compiler, lark_of_calls(LLAMA, [tool]), call.replace("arguments", "parameters")) == [True]


@pytest.mark.parametrize(("tools", "reason"), [
    ([], "between 1 and 128 tools. Given: 0"),
    ([Tool("a")] * 129, "between 1 and 128 tools. Given: 129"),
    ([Tool("a", {"properties": {"x": {"not": {}}}})], 'the parameters of "a": `not` is not supported'),
    ([Tool("a", {"properties": {"x": {"default": "\ud800"}}})], "the parameters of \"a\": the schema can't be read"),
])
@pytest.mark.parametrize("form", [HERMES, TGI])
def test_refused(form, tools, reason):
    with pytest.raises(GrammarError) as refusal:
        lark_of_calls(form, tools)
    assert reason in str(refusal.value)


def test_parameters_that_are_no_schema():
    for parameters in ({"properties": 3}, {"required": "a"}):
        with pytest.raises(GrammarError, match="must be an object and `required` a list"):
            lark_of_calls(TGI, [Tool("a", parameters)])
