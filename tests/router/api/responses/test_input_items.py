"""Items of a conversation become the messages that chats have."""

from typing import Any

import pytest

from penstock.router.api.responses.bodies import Item
from penstock.router.api.responses.input_items import carried, messages_of, uncarried
from penstock.router.errors import ValidationError

CALL = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city": "Rome"}'}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "Sunny"}
CALLED = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
TOOL = {"role": "tool", "tool_call_id": "a", "content": "Sunny"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}


def messages(*items: dict[str, Any], instructions: str | None = None) -> list[dict[str, Any]]:
    read = [(f"input[{number}]", Item.model_validate(item)) for number, item in enumerate(items)]
    return [message.model_dump(exclude_unset=True) for message in messages_of(instructions, read)]


@pytest.mark.parametrize(("items", "expected"), [
    ([USER, ASSISTANT, USER], [USER, ASSISTANT, USER]),
    ([ASSISTANT, ASSISTANT, USER], [ASSISTANT, ASSISTANT, USER]),
    ([USER, ASSISTANT, CALL, OUTPUT], [USER, {**ASSISTANT, "tool_calls": [CALLED]}, TOOL]),
    ([USER, THOUGHT, CALL, CALL, OUTPUT, OUTPUT],
     [USER, {"role": "assistant", "reasoning_content": "Hm", "tool_calls": [CALLED, CALLED]}, TOOL, TOOL]),
    ([USER, THOUGHT, ASSISTANT, THOUGHT, CALL, OUTPUT],
     [USER, {**ASSISTANT, "reasoning_content": "Hm"},
      {"role": "assistant", "reasoning_content": "Hm", "tool_calls": [CALLED]}, TOOL]),
    ([USER, THOUGHT], [USER, {"role": "assistant", "reasoning_content": "Hm", "content": ""}]),
    ([USER, {**THOUGHT, "content": None, "encrypted_content": carried("Ähm")}, ASSISTANT],
     [USER, {**ASSISTANT, "reasoning_content": "Ähm"}]),
    ([USER, {**THOUGHT, "content": None, "encrypted_content": "gAAAAA"}, ASSISTANT], [USER, ASSISTANT]),
    ([{"role": "user", "content": [{"type": "input_text", "text": "H"}, {"type": "input_text", "text": "i"}]}], [USER]),
    ([{"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
       "content": [{"type": "output_text", "text": "Yes", "annotations": []}]}, USER], [ASSISTANT, USER]),
    ([USER, {**CALL, "arguments": '{"ci', "status": "incomplete"}, USER], [USER, USER]),
    ([{**OUTPUT, "output": [{"type": "input_text", "text": "Sunny"}]}], [TOOL]),
    ([USER, {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "x"},
      {**OUTPUT, "type": "custom_tool_call_output"}],
     [USER, {"role": "assistant", "tool_calls": [
         {"id": "a", "type": "function", "function": {"name": "patch", "arguments": {"input": "x"}}}]}, TOOL]),
    ([], [{"role": "user", "content": ""}]),
])
def test_items_are_folded_into_messages(items: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert messages(*items) == expected
    assert messages(*items, instructions="Be brief.") == [{"role": "system", "content": "Be brief."}, *expected]


@pytest.mark.parametrize(("item", "sentence"), [
    ({}, "`input[0]` must have a `type`, or a `role`"),
    ({"type": "web_search_call"}, "`input[0].type` must be one of message, reasoning, function_call"),
    ({"role": "tool", "content": "a"}, "`input[0].role` must be one of user, assistant, system, developer. Given: "
     '"tool"'),
    ({"role": "user"}, "`input[0]` must have the field `content`"),
    ({"role": "user", "content": [{"type": "input_image", "image_url": "a"}]},
     "`input[0].content[0]` must be of type input_text or output_text"),
    ({**CALL, "arguments": "[]"}, "`input[0].arguments` must be a JSON object"),
    ({**CALL, "arguments": "{"}, "`input[0].arguments` must be a JSON object"),
    ({**CALL, "arguments": '{"a":' * 400 + "1" + "}" * 400}, "`input[0].arguments` is nested too deeply"),
    ({**CALL, "call_id": None}, "`input[0]` must have the field `call_id`"),
    ({**OUTPUT, "output": None}, "`input[0]` must have the field `output`"),
    ({"type": "item_reference", "id": "msg_1"}, "`input[0]` refers to an item that this server does not keep"),
])
def test_items_that_are_refused(item: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        messages(item)
    assert str(caught.value).partition(": ")[2].startswith(sentence) or str(caught.value).startswith(sentence)


@pytest.mark.parametrize("text", ["", "penstock-reasoning:", "penstock-reasoning:!", "penstock-reasoning:/w==", "a"])
def test_what_clients_did_not_get_here(text: str) -> None:
    assert not uncarried(text)
