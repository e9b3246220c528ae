"""Answers with tools where a grammar says what may come next: the model takes any token that it may."""

import json
import random

import jsonschema
import pytest

from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.scheduling.plan import Row
from tests.fakes import ScriptedFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, TIME, WEATHER, chat, chunks, joined

BOUNDED = {"type": "function", "function": {"name": "weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Köln"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["city"]}}}


SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


class Dice:
    """A model without any preference."""

    def __init__(self) -> None:
        self._random = random.Random(0)

    def __call__(self, row: Row, mask: bytes) -> int:
        return self._random.choice([number for number in range(8 * len(mask)) if mask[number // 8] >> number % 8 & 1])


@pytest.fixture(params=["hermes", "demo"])
async def server(start: Start, grammars: GrammarCompiler, request: pytest.FixtureRequest) -> Server:
    template: ChatTemplate = request.getfixturevalue(request.param)
    return await start(
        make_fleet=lambda _: ScriptedFleet(lambda row: 0, Dice()), grammars=grammars, template=template)


async def test_a_named_tool(server: Server) -> None:
    for choice in ("weather", {"type": "function", "function": {"name": "weather"}}):
        answer = (await chat(server, tools=[TIME, BOUNDED], tool_choice=choice))["choices"][0]
        assert answer["finish_reason"] == "tool_calls"
        assert answer["message"]["content"] is None
        [call] = answer["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), BOUNDED["function"]["parameters"])
    assert server.fleet.masks


async def test_required_tools(server: Server) -> None:
    asked = {"tools": [TIME, BOUNDED], "tool_choice": "required", "parallel_tool_calls": False}
    names = set()
    for _ in range(4):
        content, [call], reasons = joined(await chunks(server, **asked))
        assert (content, reasons) == ("", ["tool_calls"])
        names.add(call["function"]["name"])
    assert names <= {"weather", "time"}


async def test_several_answers(server: Server) -> None:
    whole = await chat(server, tools=[BOUNDED], tool_choice="weather", n=3)
    assert [len(choice["message"]["tool_calls"]) for choice in whole["choices"]] == [1, 1, 1]


async def test_a_choice_between_text_and_calls(
    start: Start, hermes: ChatTemplate, grammars: GrammarCompiler
) -> None:
    calls = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    server = await start(answer=calls + "<|im_end|>", template=hermes, grammars=grammars)
    for is_parallel in (True, False):
        answer = await chat(server, tools=[WEATHER], parallel_tool_calls=is_parallel)
        [call] = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert server.fleet.masks
    server = await start(answer="Hello!<|im_end|>", template=hermes, grammars=grammars)
    assert (await chat(server, tools=[WEATHER]))["choices"][0]["message"]["content"] == "Hello!"


@pytest.mark.parametrize("response_format", [
    {"type": "json_object"}, {"type": "json", "value": SCHEMA}, {"type": "regex", "value": r'\{"a":(1|2)\}'},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    {"type": "json_schema", "value": {"schema": SCHEMA}}])
async def test_a_form_of_the_answer(
    start: Start, demo: ChatTemplate, grammars: GrammarCompiler, response_format: object
) -> None:
    server = await start(answer='{"a":1}<|im_end|>', template=demo, grammars=grammars)
    choice = (await chat(server, response_format=response_format))["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ('{"a":1}', "stop")
    assert joined(await chunks(server, response_format=response_format)) == ('{"a":1}', [], ["stop"])
    assert server.fleet.masks


async def test_schemas_that_cannot_be_had(server: Server) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}
    tools = [{"type": "function", "function": {**function, "strict": True}}]
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "tools": tools})
    assert response.status == 422
    assert "the parameters of the function 'f': `not` is not supported" in await response.text()
    lax = {"messages": HELLO, "tools": [{"type": "function", "function": function}], "max_tokens": 5}
    assert (await server.post("/v1/chat/completions", lax)).status == 200


async def test_more_tools_than_a_grammar_may_have(server: Server) -> None:
    """They are offered all the same, if none must be called."""
    properties = {f"property_{number}": {"type": "string"} for number in range(300)}
    tools = [{"type": "function", "function": {"name": f"f{number}", "parameters": {"properties": properties}}}
             for number in range(10)]
    body = {"messages": HELLO, "tools": tools, "max_tokens": 3}
    response = await server.post("/chat_tokenize", body)
    assert "property_299" in (await response.json())["templated_text"]
    response = await server.post("/v1/chat/completions", body)
    assert "`inputs` tokens + `max_new_tokens` must be <=" in await response.text()
    assert server.fleet.masks == []
    response = await server.post("/v1/chat/completions", {**body, "tool_choice": "required"})
    assert response.status == 422
