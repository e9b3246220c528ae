"""Answers with tools where a grammar says what may come next: the model takes any token that it may."""

import json
from dataclasses import replace

import jsonschema
import pytest

from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import LIMITS, ScriptedFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, TIME, WEATHER, chat, chunks, joined
from tests.scripted_engine import Dice

BOUNDED = {"type": "function", "function": {"name": "weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Köln"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["city"]}}}


SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


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


FORMS = {"json_schema": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
         "regex": {"type": "regex", "value": r'\{"a":(1|2)\}'},
         "grammar": {"type": "grammar", "grammar": 'start: "{" pair "}"\npair: "\\"a\\":" /[12]/'}}


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_and_tools_of_which_none_can_be_called(server: Server, form: str) -> None:
    for fields in ({"tools": []}, {"tools": [BOUNDED], "tool_choice": "none"}, {"tool_choice": "none"}):
        message = (await chat(server, response_format=FORMS[form], **fields))["choices"][0]["message"]
        assert message.keys() == {"role", "content", "refusal"}
        jsonschema.validate(json.loads(message["content"]), SCHEMA)


async def test_a_form_gives_way_to_a_call_that_must_be(server: Server) -> None:
    for choice in ("required", "weather", {"type": "allowed_tools", "allowed_tools": {
            "mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}}):
        fields = {"tools": [BOUNDED], "tool_choice": choice, "parallel_tool_calls": False}
        answer = (await chat(server, response_format=FORMS["json_schema"], **fields))["choices"][0]
        [call] = answer["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), BOUNDED["function"]["parameters"])


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_in_a_form_or_a_call(
    start: Start, hermes: ChatTemplate, grammars: GrammarCompiler, form: str
) -> None:
    """The model says which of both: nothing else can come."""
    dice = await start(make_fleet=lambda _: ScriptedFleet(lambda row: 0, Dice()), grammars=grammars, template=hermes)
    asked = {"tools": [BOUNDED], "response_format": FORMS[form], "parallel_tool_calls": False}
    choices = (await chat(dice, n=16, **asked))["choices"]
    called = [choice["message"]["tool_calls"] for choice in choices if choice["finish_reason"] == "tool_calls"]
    texts = [choice["message"]["content"] for choice in choices if choice["finish_reason"] == "stop"]
    assert (len(called) > 0, len(texts) > 0, len(called) + len(texts)) == (True, True, 16)
    for [call] in called:
        jsonschema.validate(json.loads(call["function"]["arguments"]), BOUNDED["function"]["parameters"])
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    content, calls, reasons = joined(await chunks(dice, **asked))
    assert ((content == "") is bool(calls), reasons) == (True, ["tool_calls" if calls else "stop"])


async def test_a_form_alone_where_a_call_could_not_be_told_from_it(
    start: Start, demo: ChatTemplate, grammars: GrammarCompiler
) -> None:
    dice = await start(make_fleet=lambda _: ScriptedFleet(lambda row: 0, Dice()), grammars=grammars, template=demo)
    choices = (await chat(dice, tools=[BOUNDED], response_format=FORMS["json_schema"], n=8))["choices"]
    for choice in choices:
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


async def test_a_form_and_tools_where_grammars_are_off(start: Start, hermes: ChatTemplate) -> None:
    response = await (await start(template=hermes)).post("/v1/chat/completions", {
        "messages": HELLO, "tools": [BOUNDED], "response_format": FORMS["json_schema"]})
    assert response.status in (400, 422)
    assert "grammar is not supported" in await response.text()


async def test_a_form_and_more_tools_than_a_grammar_may_have(
    start: Start, hermes: ChatTemplate, grammars: GrammarCompiler
) -> None:
    """The form binds all the same."""
    tools = [{"type": "function", "function": {"name": "f", "description": "a", "parameters": {
        "properties": {"a": {"enum": [f"{number:06}" for number in range(9000)]}}}}}]
    server = await start(replace(LIMITS, max_input_tokens=200_000, max_total_tokens=200_100),
                         make_fleet=lambda _: ScriptedFleet(lambda row: 0, Dice()), grammars=grammars,
                         template=ChatTemplate({"default": "{% if tools %}<tool_call>{\"name\"{% endif %}Hello"}, {}))
    message = (await chat(server, tools=tools, response_format=FORMS["json_schema"]))["choices"][0]["message"]
    jsonschema.validate(json.loads(message["content"]), SCHEMA)


async def test_schemas_that_cannot_be_had(server: Server) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}
    tools = [{"type": "function", "function": {**function, "strict": True}}]
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "tools": tools})
    error = (await response.json())["error"]
    assert (response.status, error["param"]) == (400, "tools")
    assert "the parameters of the function 'f': `not` is not supported" in error["message"]
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
    assert (await response.json())["error"]["code"] == "context_length_exceeded"
    assert server.fleet.masks == []
    response = await server.post("/v1/chat/completions", {**body, "tool_choice": "required"})
    assert response.status == 400
