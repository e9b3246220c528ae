"""OpenAI's old form of tools, `functions` and `function_call`: the same calls as in the new one, told otherwise."""

from typing import Any

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import HELLO, TIME, WEATHER, chat, chunks, refusal, rendered
from tests.router.api.openai.test_chat_tools import ARGUMENTS, CALLS

FUNCTIONS = [WEATHER["function"], TIME["function"]]
CALL = CALLS.partition("</tool_call>")[0] + "</tool_call>"


@pytest.mark.parametrize("answer", [CALL, CALLS], ids=["one call", "a second one that is not told"])
async def test_a_call(start: Start, hermes: ChatTemplate, answer: str) -> None:
    server = await start(answer=f"Let me see.\n{answer}<|im_end|>", template=hermes)
    whole = (await chat(server, functions=FUNCTIONS))["choices"][0]
    assert whole["finish_reason"] == "function_call"
    assert whole["message"] == {
        "role": "assistant", "content": "Let me see.", "refusal": None,
        "function_call": {"name": "weather", "arguments": ARGUMENTS[0]}}
    streamed = [chunk["choices"][0] for chunk in await chunks(server, functions=FUNCTIONS, logprobs=True)]
    calls = [chunk["delta"]["function_call"] for chunk in streamed if "function_call" in chunk["delta"]]
    assert calls[0] == {"name": "weather", "arguments": ""}
    assert all(call.keys() == {"arguments"} for call in calls[1:])
    assert "".join(call["arguments"] for call in calls) == ARGUMENTS[0]
    assert [chunk["finish_reason"] for chunk in streamed] == [None] * (len(streamed) - 1) + ["function_call"]
    assert not any("tool_calls" in chunk["delta"] for chunk in streamed if "function_call" in chunk["delta"])
    tokens = [token for chunk in streamed for token in chunk["logprobs"]["content"]]
    assert len(tokens) == len(server.fleet.answer.ids), "each comes with one chunk"


async def test_the_prompt_is_that_of_the_new_form(start: Start, hermes: ChatTemplate) -> None:
    server = await start(template=hermes)
    tools = [{"type": "function", "function": function} for function in FUNCTIONS]
    assert await rendered(server, functions=FUNCTIONS) == await rendered(server, tools=tools)
    assert await rendered(server, functions=FUNCTIONS, function_call="none") == await rendered(server)
    named = await rendered(server, functions=FUNCTIONS, function_call={"name": "time"})
    assert '"time"' in named
    assert '"weather"' not in named
    told = await rendered(server, functions=FUNCTIONS, messages=[
        *HELLO, {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
        {"role": "function", "name": "weather", "content": "Sunny"}])
    assert "<|im_start|>tool\nSunny<|im_end|>" in told
    for nothing in ({"functions": []}, {"functions": None, "function_call": None}, {"function_call": "auto"}):
        assert await rendered(server, **nothing) == await rendered(server)


@pytest.mark.parametrize(("fields", "told", "param", "code"), [
    ({"functions": FUNCTIONS, "tools": [TIME]}, "`functions` is the old form of `tools`, and does not go with `tools`",
     "functions", "invalid_value"),
    ({"tools": [TIME], "function_call": {"name": "time"}},
     "`function_call` is the old form of `tool_choice`, and does not go with `tools`", "function_call",
     "invalid_value"),
    ({"functions": FUNCTIONS, "function_call": {"name": "other"}}, "Tool with name other not found", "function_call",
     "invalid_value"),
    ({"function_call": {"name": "other"}}, "Tool with name other not found", "function_call", "invalid_value"),
    ({"functions": FUNCTIONS, "function_call": "required"},
     "function_call: invalid value: string \"required\": Input should be 'none' or 'auto'", "function_call",
     "invalid_value"),
    ({"functions": FUNCTIONS, "function_call": 5}, "function_call: invalid value: integer `5`: must be none, auto",
     "function_call", "invalid_value"),
    ({"functions": [{"name": "a", "parameters": {"type": "string"}}]},
     "functions[0].parameters: invalid value: an object: must be a schema of type \"object\"",
     "functions[0].parameters", "invalid_value"),
    ({"functions": [{}]}, "functions[0]: missing field `name`", "functions[0].name", "missing_required_parameter"),
    ({"functions": [{"name": "a"}] * 129}, "functions: invalid value: a list: List should have at most 128 items",
     "functions", "array_above_max_length"),
])
async def test_what_is_refused(
    start: Start, hermes: ChatTemplate, fields: dict[str, Any], told: str, param: str, code: str
) -> None:
    server = await start(template=hermes)
    response = await server.post("/v1/chat/completions", {"messages": HELLO, **fields})
    content = await response.json()
    assert content["error"]["message"].startswith(told)
    assert (response.status, content) == (400, refusal(content["error"]["message"], param, code))


async def test_the_last_message_is_echoed(start: Start, demo: ChatTemplate) -> None:
    """If it is the assistant's, which is continued; else there is nothing to echo."""
    server = await start(template=demo, answer=" is.<|im_end|>")
    begun = [*HELLO, {"role": "assistant", "content": "It"}]
    for content in ("It", [{"type": "text", "text": "I"}, {"type": "text", "text": "t"}]):
        messages = [*HELLO, {"role": "assistant", "content": content}]
        whole = await chat(server, messages=messages, echo=True, n=2)
        assert [choice["message"]["content"] for choice in whole["choices"]] == ["It is.", "It is."]
        streamed = await chunks(server, messages=messages, echo=True)
        assert [chunk["choices"][0]["delta"]["content"] for chunk in streamed] == ["It is", ".", ""]
    for fields in ({"echo": False}, {"messages": HELLO, "echo": True}, {"echo": None}):
        whole = await chat(server, **{"messages": begun, **fields})
        assert whole["choices"][0]["message"]["content"] == " is."


async def test_an_echo_comes_before_a_call(start: Start, hermes: ChatTemplate) -> None:
    server = await start(template=hermes, answer=CALL + "<|im_end|>")
    messages = [*HELLO, {"role": "assistant", "content": "So: "}]
    fields: dict[str, Any] = {"messages": messages, "functions": FUNCTIONS, "echo": True}
    assert (await chat(server, **fields))["choices"][0]["message"]["content"] == "So: "
    first = (await chunks(server, **fields))[0]["choices"][0]["delta"]
    assert (first["content"], first["function_call"]["name"]) == ("So: ", "weather")
