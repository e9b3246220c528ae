"""Tools over HTTP: what the model is told of them, and what its answer becomes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.fakes import LIMITS
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import HELLO, TIME, WEATHER, chat, chunks, joined, refusal, rendered

ARGUMENTS = ['{"city": "Kö}ln"}', "{}"]
CALLS = (f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS[0]}}}\n</tool_call>\n'
         f'<tool_call>\n{{"name": "time", "arguments": {ARGUMENTS[1]}}}\n</tool_call>')
PLAIN_CALLS = (f'{{"name": "weather", "parameters": {ARGUMENTS[0]}}}; '
               f'{{"name": "time", "parameters": {ARGUMENTS[1]}}}')
TOOLS = [WEATHER, TIME]


def functions(calls: list[dict[str, Any]]) -> list[tuple[str, str]]:
    assert len({call["id"] for call in calls}) == len(calls)
    assert all(call["id"].startswith("call_") and call["type"] == "function" for call in calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def allowed(mode: str, *names: str) -> dict[str, Any]:
    """OpenAI's choice of some of the tools."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


EXPECTED = list(zip(["weather", "time"], ARGUMENTS, strict=True))


@pytest.mark.parametrize(("template", "answer", "content"), [
    ("hermes", CALLS, None), ("hermes", "Let me see.\n" + CALLS, "Let me see."), ("demo", PLAIN_CALLS, None)])
async def test_calls(
    start: Start, request: pytest.FixtureRequest, template: str, answer: str, content: str | None
) -> None:
    server = await start(answer=answer + "<|im_end|>", template=request.getfixturevalue(template))
    whole = (await chat(server, tools=TOOLS))["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] == content
    assert functions(whole["message"]["tool_calls"]) == EXPECTED
    streamed = await chunks(server, tools=TOOLS)
    text, calls, reasons = joined(streamed)
    assert (text, functions(calls), reasons) == (content or "", EXPECTED, ["tool_calls"])
    assert all(chunk["choices"][0]["delta"]["role"] == "assistant" for chunk in streamed)
    pieces = [call["function"]["arguments"] for chunk in streamed
              for call in chunk["choices"][0]["delta"].get("tool_calls") or ()]
    assert len(pieces) > 6  # as they come


async def test_no_call(start: Start, hermes: ChatTemplate) -> None:
    server = await start(template=hermes)
    without = await chat(server)
    for choice in ("auto", "none", None):
        whole = await chat(server, tools=TOOLS, tool_choice=choice)
        assert whole["choices"] == without["choices"]
        assert joined(await chunks(server, tools=TOOLS, tool_choice=choice)) == joined(await chunks(server))


async def test_the_end_of_an_answer_with_calls(start: Start, hermes: ChatTemplate) -> None:
    server = await start(answer=CALLS + "<|im_end|>", template=hermes)
    num_tokens = len(await server.tokenizer.encode('<tool_call>\n{"name": "weather", "arguments": {"city'))
    cut = (await chat(server, tools=TOOLS, max_tokens=num_tokens))["choices"][0]
    assert cut["finish_reason"] == "length"
    assert ARGUMENTS[0].startswith(cut["message"]["tool_calls"][0]["function"]["arguments"])
    unread = (await chat(server))["choices"][0]
    assert (unread["message"], unread["finish_reason"]) == (
        {"role": "assistant", "content": CALLS, "refusal": None}, "stop")


async def test_logprobs_of_what_is_held(start: Start, hermes: ChatTemplate) -> None:
    server = await start(answer=CALLS + "<|im_end|>", template=hermes)
    whole = (await chat(server, tools=TOOLS, logprobs=True))["choices"][0]["logprobs"]["content"]
    streamed = await chunks(server, tools=TOOLS, logprobs=True)
    assert len(whole) == len(server.fleet.answer.ids)
    assert [token for chunk in streamed for token in chunk["choices"][0]["logprobs"]["content"]] == whole


async def test_several_answers_with_calls(start: Start, hermes: ChatTemplate) -> None:
    server = await start(answer=CALLS + "<|im_end|>", template=hermes)
    whole = await chat(server, tools=TOOLS, n=2)
    ids = [call["id"] for choice in whole["choices"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 4
    streamed = await chunks(server, tools=TOOLS, n=2)
    assert [functions(joined(streamed, index)[1]) for index in range(2)] == [EXPECTED] * 2


async def test_what_a_template_with_tools_is_told(start: Start, hermes: ChatTemplate) -> None:
    server = await start(template=hermes)
    described = [{**WEATHER}, {"type": "function", "function": {
        "name": "time", "parameters": {"type": "object", "properties": {}}}}]
    told = (await rendered(server, tools=TOOLS)).partition("Write")[0].removeprefix("<|im_start|>system\n")
    assert [json.loads(line) for line in told.splitlines()] == described
    assert "weather" not in await rendered(server, tools=TOOLS, tool_choice="none")
    for choice in ("time", {"function": {"name": "time"}}, allowed("auto", "time"), allowed("required", "time")):
        told = await rendered(server, tools=TOOLS, tool_choice=choice)
        assert '"time"' in told
        assert '"weather"' not in told
    assert "user\nHello\n---\nBe quick.<|im_end|>" in await rendered(server, tools=TOOLS, tool_prompt="Be quick.")
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    told = await rendered(server, tools=TOOLS, messages=[
        *HELLO, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}])
    assert told.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>tool\nSunny<|im_end|>\n<|im_start|>assistant\n")


async def test_what_a_template_without_tools_is_told(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    told = await rendered(server, tools=TOOLS)
    assert told.startswith('<|im_start|>user\nHello\n---\n[{"name": "weather"')
    assert told.endswith('between several calls.<|im_end|>\n<|im_start|>assistant\n')
    told = await rendered(server, tools=TOOLS, tool_prompt="Call!")
    assert told.endswith("]\nCall!<|im_end|>\n<|im_start|>assistant\n")
    call = {"id": 0, "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
    told = await rendered(server, messages=[
        *HELLO, {"role": "assistant", "tool_calls": [call, call]}, {"role": "tool", "content": "Sunny"}])
    one = '{"name": "weather", "parameters": {"city": "Rome"}}'
    assert f"<|im_start|>assistant\n{one}; {one}<|im_end|>\n<|im_start|>tool\nSunny" in told


async def test_a_template_with_tools_that_teaches_no_format(start: Start) -> None:
    """It is rendered as it is, without a word of ours; calls are read if they are in the plain form."""
    template = ChatTemplate({"default": HERMES.replace("<tool_call>", "<call>")}, {})
    server = await start(answer=PLAIN_CALLS + "<|im_end|>", template=template)
    whole = (await chat(server, tools=TOOLS))["choices"][0]
    assert functions(whole["message"]["tool_calls"]) == EXPECTED
    told = await rendered(server, tools=TOOLS)
    assert told.count('"weather"') == 1
    assert "between several calls" not in told


async def test_a_format_that_is_asked_for_by_name(start: Start, hermes: ChatTemplate) -> None:
    limits = replace(LIMITS, tool_call_parser="qwen3_coder")
    answer = ("<tool_call>\n<function=weather>\n<parameter=city>\nK\u00f6}ln\n</parameter>\n</function>\n</tool_call>\n"
              "<tool_call>\n<function=time>\n</function>\n</tool_call><|im_end|>")
    server = await start(limits, answer, template=hermes)
    whole = (await chat(server, tools=TOOLS))["choices"][0]
    assert functions(whole["message"]["tool_calls"]) == EXPECTED
    text, calls, reasons = joined(await chunks(server, tools=TOOLS))
    assert (text, functions(calls), reasons) == ("", EXPECTED, ["tool_calls"])


async def test_short_ids_and_a_special_token(start: Start) -> None:
    """In the place of Mistral's own, which the demo model does not have."""
    template = ChatTemplate({"default": '{% if tools %}{% endif %}{# "[TOOL_CALLS] [" #}Hello'}, {})
    answer = '[TOOL_CALLS] [{"name": "time", "arguments": {}}]<|im_end|>'
    server = await start(answer=answer, template=template)
    call = (await chat(server, tools=TOOLS))["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] == "time"
    assert len(call["id"]) == 9
    assert call["id"].isalnum()


@pytest.mark.parametrize(("fields", "message", "param"), [
    ({"tools": TOOLS, "tool_choice": "other"}, "Tool with name other not found", "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
     "Tool with name other not found", "tool_choice"),
    ({"tool_choice": "weather"}, "Tool with name weather not found", "tool_choice"),
    ({"tool_choice": "required"}, '`tool_choice` is "required", but there are no `tools`', "tool_choice"),
    ({"tools": TOOLS, "tool_choice": allowed("auto", "weather", "other")}, "Tool with name other not found",
     "tool_choice"),
    ({"tools": TOOLS, "tool_choice": allowed("required")}, '`tool_choice` is "required", but there are no `tools`',
     "tool_choice"),
])
async def test_tool_errors(
    start: Start, hermes: ChatTemplate, fields: dict[str, object], message: str, param: str
) -> None:
    server = await start(template=hermes)
    for is_stream in (False, True):
        response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": is_stream, **fields})
        assert (response.status, await response.json()) == (400, refusal(message, param))
    assert server.series()['tgi_request_failure{err="validation"}'] == 2


@pytest.mark.parametrize(("fields", "told"), [
    ({"tools": [{"type": "retrieval", "function": {"name": "a"}}]}, "tools[0].type: "),
    ({"tools": [{"type": "function"}]}, "tools[0]: missing field `function`"),
    ({"tools": [{"function": {"name": ""}}]}, "tools[0].function.name: "),
    ({"tools": [{"function": {"name": "a", "parameters": {"type": "string"}}}]},
     "`tools[0].function.parameters` must be a schema of type "),
    ({"tools": TOOLS, "tool_choice": 5}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "a"}}},
     "must be none, auto, required, or an object of type function or allowed_tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "missing field `allowed_tools`"),
    ({"tools": TOOLS, "tool_choice": {"type": ["function"]}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "required"}, "grammar is not supported"),  # the server was told to have none
])
async def test_tools_of_another_shape(
    start: Start, hermes: ChatTemplate, fields: dict[str, object], told: str
) -> None:
    server = await start(template=hermes)
    response = await server.post("/v1/chat/completions", {"messages": HELLO, **fields})
    assert response.status == 400
    assert told in (await response.json())["error"]["message"]


async def test_a_schema_that_is_too_deep(start: Start, hermes: ChatTemplate) -> None:
    server = await start(template=hermes)
    schema: dict[str, Any] = {}
    for _ in range(300):
        schema = {"properties": {"a": schema}}
    response = await server.post("/v1/chat/completions", {
        "messages": HELLO, "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]})
    assert (response.status, await response.json()) == (
        400, refusal("`tools[0]` is nested too deeply", "tools[0]"))
