"""Tools in the words of a conversation."""

import json

from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd
from penstock.router.chat.tools.families import PLAIN
from penstock.router.chat.tools.offer import Tool
from penstock.router.chat.tools.parser import CallParser
from penstock.router.chat.tools.prompt import add_to_messages, calls_as_text, describe

USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "So"}


def test_where_the_words_are_put() -> None:
    told = {**USER, "content": "Hi\n---\nX"}
    assert add_to_messages([USER], "X") == [told]
    assert add_to_messages([USER, ASSISTANT, USER], "X") == [USER, ASSISTANT, told]
    assert add_to_messages([USER, ASSISTANT], "X") == [told, ASSISTANT]
    assert add_to_messages([ASSISTANT], "X") == [{"role": "system", "content": "X"}, ASSISTANT]


def test_description() -> None:
    functions = [{"name": "f", "description": "Does ä.", "parameters": {"type": "object", "properties": {}}},
                 {"name": "g", "parameters": {}}]
    tools = [Tool(function["name"], None, {}, told={"type": "function", "function": function})
             for function in functions]
    assert json.loads(describe(tools)) == functions


def test_calls_of_earlier_answers_read_as_a_model_is_asked_to_write_them() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
             for name, arguments in (("f", '{"ä":[1]}'), ('g"', {}))]
    assert calls_as_text(USER) is USER
    message = calls_as_text({**ASSISTANT, "content": "", "tool_calls": calls})
    assert message.keys() == {"role", "content"}
    parser = CallParser(PLAIN)
    deltas = parser.push(message["content"]) + parser.finish()
    assert deltas == [CallBegin(0, "f"), Arguments(0, '{"ä": [1]}'), CallEnd(0), CallBegin(1, 'g"'),
                      Arguments(1, "{}"), CallEnd(1)]
    assert calls_as_text({**ASSISTANT, "tool_calls": calls})["content"] == "So\n" + message["content"]
