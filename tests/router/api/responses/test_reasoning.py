"""Reasoning of responses: an item of its own, told in events, counted, and carried by clients to the next turn."""

from typing import Any

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, chat
from tests.router.api.openai.test_chat_tools import CALLS
from tests.router.api.openai.test_thinking import SOURCE, THOUGHTS
from tests.router.api.responses.asking import TIME, URL, WEATHER, ask, lasting, order, stream
from tests.router.api.responses.test_output_items import CALL, REASONING

KEEPS = SOURCE.replace("{{ m.content }}", "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
                                          "{% endif %}{{ m.content }}")
"""A template that shows the thoughts of earlier turns."""
TOOLS = [WEATHER, TIME]
CARRIED = {"include": ["reasoning.encrypted_content"], "tools": TOOLS}


@pytest.fixture
async def thinker(start: Start) -> Server:
    return await start(answer=f"<think>\n{THOUGHTS}\n</think>\n\n{CALLS}<|im_end|>",
                       template=ChatTemplate({"default": KEEPS}, {}))


async def test_reasoning_is_an_item(thinker: Server) -> None:
    whole, events = await ask(thinker, tools=TOOLS), await stream(thinker, tools=TOOLS)
    assert order(events) == ["created", "in_progress", *REASONING, *CALL, *CALL, "completed"]
    assert lasting(events[-1]["response"]) == lasting(whole)
    reasoning = whole["output"][0]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": THOUGHTS}]
    assert reasoning["summary"] == []
    assert "encrypted_content" not in reasoning
    number = whole["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert number == len(await thinker.tokenizer.encode(f"\n{THOUGHTS}\n"))


@pytest.mark.parametrize("is_carried", [False, True])
async def test_the_next_turn_has_it_again(thinker: Server, is_carried: bool) -> None:
    """As it does by chats; some clients send back nothing of it but what they can't read."""
    fields: dict[str, Any] = CARRIED if is_carried else {"tools": TOOLS}
    reasoning, *calls = (await ask(thinker, **fields))["output"]
    if is_carried:
        reasoning = {name: value for name, value in reasoning.items() if name != "content"}
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny"} for call in calls]
    number = (await ask(thinker, input=[*HELLO, reasoning, *calls, *outputs], **fields))["usage"]["input_tokens"]
    without = (await ask(thinker, input=[*HELLO, *calls, *outputs], **fields))["usage"]["input_tokens"]
    assert number > without
    answer = await chat(thinker, tools=[{"type": "function", "function": {
        name: value for name, value in tool.items() if name != "type"}} for tool in TOOLS])
    message = answer["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "Sunny"} for call in message["tool_calls"]]
    again = await chat(thinker, messages=[*HELLO, message, *results], tools=[{"type": "function", "function": {
        name: value for name, value in tool.items() if name != "type"}} for tool in TOOLS])
    assert again["usage"]["prompt_tokens"] == number


async def test_an_answer_that_ends_within_it(thinker: Server) -> None:
    number = len(await thinker.tokenizer.encode("<think>\nWell, 1"))
    whole = await ask(thinker, max_output_tokens=number)
    [reasoning] = whole["output"]
    assert (reasoning["type"], reasoning["status"], whole["status"]) == ("reasoning", "incomplete", "incomplete")


async def test_efforts(thinker: Server, start: Start, demo: ChatTemplate) -> None:
    """Every effort is taken, whatever the model makes of it."""
    plain = await start(template=demo)
    for server in (thinker, plain):
        for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
            assert (await ask(server, reasoning={"effort": effort, "summary": "auto"}))["reasoning"] == {
                "effort": effort, "summary": "auto"}
    quiet, usual = [await thinker.post(f"{URL}/input_tokens", {"input": "a", "reasoning": {"effort": effort}})
                    for effort in ("none", "high")]
    assert (await quiet.json())["input_tokens"] > (await usual.json())["input_tokens"]  # the template closes it
