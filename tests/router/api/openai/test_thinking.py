"""Thoughts over HTTP: told apart, streamed, bound in number, and not bound in form."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.contract.row import Row
from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import FACTS, ScriptedFleet
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Script, Server, Start
from tests.router.api.openai.chats import HELLO, WEATHER, chat, chunks, refusal, rendered
from tests.router.text.tokenizers_for_tests import DEMO

THOUGHTS = "Well, 1 < 2.\nSo"
ANSWER = f"<think>\n{THOUGHTS}\n</think>\n\nYes.<|im_end|>"
SWITCH = ("{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
          "{% elif opens %}<think>\n{% endif %}")
SOURCE = HERMES + "{% if add_generation_prompt %}" + SWITCH + "{% endif %}"
OPENED = {"chat_template_kwargs": {"opens": True}}


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    """A template like Qwen3's, which can open the thinking, or close it."""
    return ChatTemplate({"default": SOURCE}, {})


def obedient(script: Script) -> ScriptedFleet:
    """A model that says what it says, as far as masks allow it."""
    def allowed(row: Row, mask: bytes) -> int:
        liked, allowed = script(row), int.from_bytes(mask, "little")
        return liked if allowed >> liked & 1 else (allowed & -allowed).bit_length() - 1

    return ScriptedFleet(script, allowed)


async def whole(server: Server, **fields: object) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = await chat(server, **fields)
    return answer["choices"][0]["message"], answer["usage"]


def thought(streamed: list[dict[str, Any]]) -> tuple[str, str]:
    """The thoughts and the content of a stream; thoughts come under both names."""
    deltas = [chunk["choices"][0]["delta"] for chunk in streamed if chunk["choices"]]
    assert all(delta.get("reasoning") == delta.get("reasoning_content") for delta in deltas)
    return ("".join(delta.get("reasoning") or "" for delta in deltas),
            "".join(delta.get("content") or "" for delta in deltas))


async def test_thoughts_are_told_apart(start: Start, template: ChatTemplate) -> None:
    server = await start(answer=ANSWER, template=template)
    message, usage = await whole(server)
    assert message == {"role": "assistant", "content": "Yes.", "refusal": None, "reasoning_content": THOUGHTS,
                       "reasoning": THOUGHTS}
    number = len(await server.tokenizer.encode(f"\n{THOUGHTS}\n"))
    assert usage["completion_tokens_details"] == {"reasoning_tokens": number}
    streamed = await chunks(server, stream_options={"include_usage": True})
    assert thought(streamed) == (THOUGHTS, "Yes.")
    assert streamed[-1]["usage"] == usage
    assert len(streamed) == usage["completion_tokens"] + 1  # a chunk for each token
    assert sum("reasoning" in chunk["choices"][0]["delta"] for chunk in streamed[:-1]) > 3  # as they come


async def test_thoughts_that_the_prompt_opens(start: Start, template: ChatTemplate) -> None:
    server = await start(answer=ANSWER.removeprefix("<think>\n"), template=template)
    message, _ = await whole(server, **OPENED)
    assert (message["reasoning"], message["content"]) == (THOUGHTS, "Yes.")
    assert thought(await chunks(server, **OPENED)) == (THOUGHTS, "Yes.")
    cut, usage = await whole(server, max_tokens=4, **OPENED)
    assert THOUGHTS.startswith(cut["reasoning"])
    assert cut["content"] == ""
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}
    message, usage = await whole(server)
    assert message["content"].startswith(THOUGHTS)
    assert "reasoning" not in message
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize("fields", [
    {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}, {"reasoning_effort": "minimal"},
    {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}])
async def test_thinking_that_is_off(start: Start, template: ChatTemplate, fields: dict[str, Any]) -> None:
    server = await start(answer="<think>Yes.<|im_end|>", template=template)
    assert (await rendered(server, **fields)).endswith("<think>\n\n</think>\n\n")
    message, usage = await whole(server, **fields)
    assert message == {"role": "assistant", "content": "<think>Yes.", "refusal": None}
    assert "completion_tokens_details" not in usage


async def test_efforts(start: Start, template: ChatTemplate) -> None:
    server = await start(answer=ANSWER, template=template)
    assert (await rendered(server, reasoning_effort="high")).endswith("<|im_start|>assistant\n")
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "reasoning_effort": "much"})
    assert (response.status, await response.json()) == (400, refusal(
        "`reasoning_effort` must be one of none, minimal, low, medium, high, xhigh, max. Given: \"much\"",
        "reasoning_effort"))


async def test_thoughts_that_nobody_wants(start: Start, template: ChatTemplate) -> None:
    server = await start(answer=ANSWER, template=template)
    message, usage = await whole(server, include_reasoning=False)
    assert message == {"role": "assistant", "content": "Yes.", "refusal": None}
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 3
    assert thought(await chunks(server, include_reasoning=False)) == ("", "Yes.")


@pytest.mark.parametrize("name", ["thinking_token_budget", "thinking_budget", "reasoning_budget_tokens"])
@pytest.mark.parametrize("budget", [0, 1, 6])
async def test_a_budget_holds_to_the_token(
    start: Start, template: ChatTemplate, grammars: GrammarCompiler, name: str, budget: int
) -> None:
    server = await start(answer=THOUGHTS + "and so on, " * 9, template=template, grammars=grammars,
                         make_fleet=obedient)
    message, usage = await whole(server, max_tokens=30, **{name: budget}, **OPENED)
    assert usage["completion_tokens_details"] == {"reasoning_tokens": budget}
    assert message["content"]
    streamed = await chunks(server, max_tokens=30, **{name: budget}, **OPENED)
    assert thought(streamed) == (message.get("reasoning", ""), message["content"])


async def test_a_budget_holds_where_the_answer_ends_within_the_mark(
    start: Start, template: ChatTemplate, grammars: GrammarCompiler
) -> None:
    server = await start(answer=THOUGHTS + "and so on, " * 9, template=template, grammars=grammars, make_fleet=obedient)
    assert len(await server.tokenizer.encode("</think>")) > 1
    _, usage = await whole(server, max_tokens=5, thinking_budget=4, **OPENED)
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}


async def test_a_budget_of_any_number(start: Start, template: ChatTemplate, grammars: GrammarCompiler) -> None:
    server = await start(answer=ANSWER, template=template, grammars=grammars)
    assert await whole(server, thinking_budget=-1) == await whole(server)


async def test_a_form_binds_the_answer_alone(
    start: Start, template: ChatTemplate, grammars: GrammarCompiler
) -> None:
    server = await start(answer="<think>" + THOUGHTS + "</think>\n\n{ and so on", template=template, grammars=grammars,
                         make_fleet=obedient)
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [{"yes": 1}, {"yes": 2}]}}}
    for fields in ({}, {"thinking_token_budget": 3}):
        message, usage = await whole(server, response_format=form, max_tokens=60, **fields)
        assert json.loads(message["content"])["yes"] in (1, 2)
        assert THOUGHTS.startswith(message["reasoning"])
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 3 or not fields


async def test_calls_behind_thoughts(start: Start, template: ChatTemplate, grammars: GrammarCompiler) -> None:
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rom"}}\n</tool_call>'
    for compiler in (None, grammars):
        server = await start(answer=ANSWER.removesuffix("Yes.<|im_end|>") + call + "<|im_end|>", template=template,
                             grammars=compiler, make_fleet=obedient)
        message, _ = await whole(server, tools=[WEATHER], max_tokens=60)
        assert message["reasoning"] == THOUGHTS
        assert message["content"] is None
        assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Rom"}'}


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer that has the marks as special tokens, as many models' have."""
    content = json.loads(DEMO.read_text())
    for number, mark in enumerate(("<think>", "</think>"), FACTS.vocab_size):
        content["added_tokens"].append({
            "id": number, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True})
    file = tmp_path_factory.mktemp("special") / "tokenizer.json"
    file.write_text(json.dumps(content))
    return file


async def test_marks_that_are_special_tokens(start: Start, template: ChatTemplate, special: Path) -> None:
    facts = replace(FACTS, vocab_size=FACTS.vocab_size + 32)
    compiler = GrammarCompiler(special, facts.vocab_size, facts.eos_token_ids)
    try:
        server = await start(answer=ANSWER, template=template, grammars=compiler, make_fleet=obedient,
                             tokenizer_file=special, facts=facts)
        assert len(await server.tokenizer.encode("</think>")) == 1
        message, usage = await whole(server)
        assert (message["reasoning"], message["content"]) == (THOUGHTS, "Yes.")
        for budget in (0, 1, 4):
            _, usage = await whole(server, thinking_token_budget=budget, max_tokens=30)
            assert usage["completion_tokens_details"] == {"reasoning_tokens": budget}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [1, 2]}}}
        message, _ = await whole(server, response_format=form, max_tokens=30)
        assert message["reasoning"] == THOUGHTS
        assert message["content"] in ("1", "2")
    finally:
        compiler.close()


async def test_thoughts_sent_back(start: Start, template: ChatTemplate) -> None:
    source = ("{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
              "{% endif %}{{ m.content }};{% endfor %}")
    server = await start(template=ChatTemplate({"default": source}, {}))
    for name in ("reasoning_content", "reasoning", "thinking"):
        answer = {"role": "assistant", "content": "b", name: "a"}
        assert await rendered(server, messages=[*HELLO, answer, *HELLO]) == (
            "user:Hello;assistant:<think>a</think>b;user:Hello;")


@pytest.mark.parametrize(("source", "sentence"), [
    (SOURCE, "`thinking_budget` is not supported: this server has no grammars"),
    (HERMES, "`thinking_budget` is not supported: this model's chat template tells of no thinking")])
async def test_budgets_that_can_not_be_held(start: Start, source: str, sentence: str) -> None:
    server = await start(template=ChatTemplate({"default": source}, {}))
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "thinking_budget": 3})
    assert (response.status, await response.json()) == (400, refusal(sentence, "thinking_budget",
                                                                        "unsupported_parameter"))
