"""The grammar of gpt-oss' answers, and its history as its template has it."""

import json
from collections.abc import Iterator

import pytest

from penstock.router.chat.harmony_format import HARMONY, THINKING, harmony_grammar
from penstock.router.chat.past_thoughts import fitted
from penstock.router.chat.thinking_format import taught_format
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import accepts_of, make_compiler

C, M, E, S = "<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant"
TOOLS = (Tool("f", None, {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
         Tool("g", None, {"type": "object", "properties": {}}))
CALL = f'{C}commentary to=functions.f <|constrain|>json{M}{{"x": 1}}'
SOURCE = "'<|channel|>analysis<|message|>'"


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = make_compiler()
    yield compiler
    compiler.close()


async def test_a_choice_of_calls_and_text(compiler: GrammarCompiler) -> None:
    spec = harmony_grammar(Offer(TOOLS), {})
    assert await accepts_of(
        compiler, spec, CALL, f"{C}final{M}Yes.", f"{C}commentary{M}I look.{E}{S}{CALL}",
        f' to=functions.g{C}commentary json{M}{{}}', f"{C}commentary to=functions.f{M}{{\"x\": 1}}") == [True] * 5
    assert await accepts_of(
        compiler, spec, f"{C}analysis{M}a", f"{C}commentary to=functions.h{M}{{}}", "Yes",
        f'{C}commentary to=functions.f{M}{{"x": "1"}}') == [False] * 4


async def test_calls_that_must_come(compiler: GrammarCompiler) -> None:
    spec = harmony_grammar(Offer(TOOLS, must_call=True), {})
    assert await accepts_of(compiler, spec, CALL, f"{C}final{M}Yes.") == [True, False]


async def test_a_form_of_the_final_message(compiler: GrammarCompiler) -> None:
    form = GrammarSpec("json", '{"enum":[1,2]}')
    assert await accepts_of(compiler, harmony_grammar(None, {}, form), f"{C}final{M}1", f"{C}final{M}3", CALL) == [
        True, False, False]
    assert await accepts_of(compiler, harmony_grammar(Offer(TOOLS), {}, form), f"{C}final{M}1", CALL) == [True, True]
    assert await accepts_of(compiler, harmony_grammar(None, {}), f"{C}final{M}1", f"{C}analysis{M}1") == [True, False]


def test_special_tokens_are_demanded_by_their_ids() -> None:
    source = harmony_grammar(Offer(TOOLS), {C: 5, M: 6, E: 7, "<|start|>": 8}).source
    assert "<[5]>" in source
    assert C not in source


def test_names_that_no_recipient_has() -> None:
    with pytest.raises(GrammarError, match="the name of the function 'a b'"):
        harmony_grammar(Offer((Tool("a b", None, {}),)), {})


def test_what_the_template_is_known_by() -> None:
    assert taught_format(SOURCE) is THINKING
    assert HARMONY.taught_by.search(SOURCE)


def call(name: str, id: str) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def test_a_call_in_each_message() -> None:
    messages = [{"role": "user", "content": "a"},
                {"role": "assistant", "reasoning": "b", "content": "c", "tool_calls": [call("f", "1"), call("g", "2")]},
                {"role": "tool", "tool_call_id": "2", "content": "d"},
                {"role": "tool", "tool_call_id": "1", "content": "e"},
                {"role": "assistant", "content": "f", "thinking": "g"}]
    assert fitted(messages, SOURCE) == [
        messages[0], {"role": "assistant", "tool_calls": [call("g", "2")]}, messages[2],
        {"role": "assistant", "thinking": "b\n\nc", "tool_calls": [call("f", "1")]}, messages[3], messages[4]]
    assert fitted(messages[1:2], SOURCE) == [
        {"role": "assistant", "thinking": "b\n\nc", "tool_calls": [call("f", "1")]},
        {"role": "assistant", "tool_calls": [call("g", "2")]}]


def test_thoughts_as_parts() -> None:
    source = "[THINK]{% if block['type'] == 'thinking' %}{{ block['thinking'] }}[/THINK]{% endif %}"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"},
                {"role": "assistant", "content": "d"}]
    assert fitted(messages, source) == [
        messages[0], {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "c"}, {"type": "text", "text": "b"}]}, messages[2]]
    assert fitted(messages, "<think></think>") == messages
    assert json.dumps(messages).count("thinking") == 0
