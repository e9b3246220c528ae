"""The prompts of conversations, which are those that the server's routes make."""

import json
import logging
from typing import Any

import pytest

from penstock import LLM
from penstock.router.chat.tools.prompt import PROMPT

PRINTS = "{{ messages | tojson }}"
TAKES_TOOLS = "{{ messages | tojson }}|{{ tools | tojson }}"
USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def prompt(llm: LLM, *messages: dict[str, Any], source: str = PRINTS, **arguments: Any) -> str:
    """The prompt that a template makes of messages."""
    return llm.get_tokenizer().apply_chat_template(messages, tokenize=False, chat_template=source, **arguments)


@pytest.mark.parametrize(("message", "read"), [
    ({"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}, USER),
    ({"role": "developer", "content": "Hi"}, {"role": "system", "content": "Hi"}),
    ({"role": "function", "name": "weather", "content": None}, {"role": "tool", "name": "weather", "content": ""}),
    ({"role": "assistant", "content": None, "refusal": "No."}, {"role": "assistant", "content": "No."}),
    ({"role": "assistant", "function_call": CALL["function"]},
     {"role": "assistant", "content": '{"name": "weather", "parameters": {"city": "Rome"}}'}),
    ({"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "assistant", "content": '{"name": "weather", "parameters": {"city": "Rome"}}'}),
])
def test_messages_are_read_as_on_the_routes(llm: LLM, message: dict[str, Any], read: dict[str, Any]) -> None:
    assert json.loads(prompt(llm, message)) == [read]


def test_a_message_describes_tools_to_a_template_that_takes_none(llm: LLM) -> None:
    [told] = json.loads(prompt(llm, USER, tools=[TOOL]))
    assert told["content"] == f"Hi\n---\n{json.dumps([TOOL['function']])}\n{PROMPT}"
    assert json.loads(prompt(llm, USER, tools=[])) == [USER]
    messages, _, tools = prompt(llm, USER, source=TAKES_TOOLS, tools=[TOOL]).partition("|")
    assert (json.loads(messages), json.loads(tools)) == ([USER], [TOOL])


def test_chats_have_the_same_prompts(llm: LLM) -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    outputs = llm.chat([[parts], [USER, parts]], use_tqdm=False, tools=[TOOL])
    expected = [llm.get_tokenizer().apply_chat_template(
        each, tokenize=False, add_generation_prompt=True, tools=[TOOL]) for each in ([USER], [USER, USER])]
    assert [output.prompt for output in outputs] == expected
    assert PROMPT in expected[0]


@pytest.mark.parametrize(("messages", "arguments", "sentence"), [
    ([{"content": "Hi"}], {}, r"^messages\[0\]: missing field `role`$"),
    ([USER, {"role": "user"}], {}, r"^`messages\[1\]` must have `content` or `tool_calls`"),
    ([[USER], [{"role": "nobody", "content": "Hi"}]], {}, r"^conversation 1: `messages\[0\].role` must be one of "),
    ([[USER], [{"role": 3, "content": "Hi"}]], {},
     r"^conversation 1: messages\[0\].role: invalid type: integer `3`, expected a string"),
    ([[USER], []], {}, "^conversation 1: messages: "),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}], {},
     r"`messages\[0\].content\[0\]` must be of type \"text\""),
    ([USER], {"tools": [{"type": "function"}]}, r"^tools\[0\]: missing field `function`"),
    ([USER], {"chat_template_kwargs": {"temperature_last": True}}, "`temperature_last`, other than false, is not supp"),
    ([USER], {"chat_template_kwargs": {"tools": []}}, "`chat_template_kwargs` cannot have `tools`"),
    ([USER], {"continue_final_message": True}, "`add_generation_prompt` and `continue_final_message` cannot both"),
    ([USER], {"chat_template": "{{ raise_exception('Not so.') }}"}, "Not so."),
])
def test_wrong_chats_are_refused_by_name(
    llm: LLM, messages: Any, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        llm.chat(messages, use_tqdm=False, **arguments)


def test_the_log_tells_of_variables_that_the_template_does_not_read(
    llm: LLM, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.offline"):
        assert prompt(llm, USER, source="{{ kind }}", kind="Q", enable_thinking=False) == "Q"
    assert [record.getMessage() for record in caplog.records] == [
        "`enable_thinking` of `chat_template_kwargs` has no effect: the chat template does not read it"]
