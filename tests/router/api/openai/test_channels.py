"""Answers in channels over HTTP, as gpt-oss writes them: thoughts, calls and text, bound and free."""

import json

import pytest

from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import HELLO, TIME, WEATHER, chat, chunks, rendered
from tests.router.api.openai.test_thinking import obedient, thought

C, M, E, S = "<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant"
SOURCE = """Reasoning: {{ reasoning_effort | default("medium") }}
{%- for tool in tools or [] %} {{ tool.function.name }}{% endfor %}
{% for m in messages -%}
{%- if m.role == "assistant" and m.tool_calls and m.content and m.thinking %}{{ raise_exception("both") }}{% endif %}
{%- if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}
{%- if m.tool_calls %}<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}
{%- endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
CALL = f'{C}commentary to=functions.weather <|constrain|>json{M}{{"city": "Rom"}}'
FINAL = f"{C}analysis{M}Let me see.{E}{S}{C}final{M}Yes."


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate({"default": SOURCE}, {})


async def test_thoughts_and_text(start: Start, template: ChatTemplate) -> None:
    server = await start(answer=f"{FINAL}<|im_end|>", template=template)
    message = (await chat(server))["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("Let me see.", "Yes.")
    assert thought(await chunks(server)) == ("Let me see.", "Yes.")
    assert (await rendered(server, reasoning_effort="high")).startswith("Reasoning: high<")


async def test_a_call_behind_thoughts(start: Start, template: ChatTemplate, grammars: GrammarCompiler) -> None:
    for compiler in (None, grammars):
        server = await start(answer=f"{C}analysis{M}So{E}{S}{CALL}<|im_end|>", template=template, grammars=compiler,
                             make_fleet=obedient)
        choice = (await chat(server, tools=[WEATHER, TIME], max_tokens=80))["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["reasoning"] == "So"
        [call] = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "weather", "arguments": '{"city": "Rom"}'}


async def test_a_call_that_must_come(start: Start, template: ChatTemplate, grammars: GrammarCompiler) -> None:
    server = await start(answer=f"{FINAL}<|im_end|>", template=template, grammars=grammars, make_fleet=obedient)
    answer = await chat(server, tools=[WEATHER, TIME], tool_choice="time", max_tokens=80)
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "time", "arguments": "{}"}
    assert answer["choices"][0]["message"]["reasoning"] == "Let me see."


async def test_a_form_and_a_budget(start: Start, template: ChatTemplate, grammars: GrammarCompiler) -> None:
    server = await start(answer=f"{C}analysis{M}and so on, and so on, and so on", template=template, grammars=grammars,
                         make_fleet=obedient)
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [1, 2]}}}
    answer = await chat(server, response_format=form, thinking_token_budget=5, max_tokens=60)
    assert json.loads(answer["choices"][0]["message"]["content"]) in (1, 2)
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    answer = await chat(server, thinking_token_budget=5, max_tokens=60)
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    assert answer["choices"][0]["message"]["content"]


async def test_history(start: Start, template: ChatTemplate) -> None:
    server = await start(template=template)
    calls = [{"id": str(number), "type": "function", "function": {"name": name, "arguments": "{}"}}
             for number, name in enumerate(("weather", "time"))]
    told = await rendered(server, tools=[WEATHER, TIME], messages=[
        *HELLO, {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": calls},
        *({"role": "tool", "tool_call_id": str(number), "content": text} for number, text in enumerate(("Sun", "12")))])
    assert told == (
        "Reasoning: medium weather time<|start|>user<|message|>Hello<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Hm.\n\nI look.<|end|>"
        "<|start|>assistant to=functions.weather<|channel|>commentary json<|start|>tool<|message|>Sun<|end|>"
        "<|start|>assistant to=functions.time<|channel|>commentary json<|start|>tool<|message|>12<|end|>"
        "<|start|>assistant")
