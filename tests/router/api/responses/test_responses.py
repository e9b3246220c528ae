"""`/v1/responses` over HTTP: what is answered, whole and in events."""

from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, TEXT, chat
from tests.router.api.openai.test_chat_tools import ARGUMENTS, CALLS
from tests.router.api.responses.asking import TIME, URL, WEATHER, ask, lasting, stream
from tests.router.api.sdk import openai_client


class City(BaseModel):
    city: str


@pytest.fixture
async def talker(start: Start, demo: ChatTemplate) -> Server:
    return await start(template=demo)


@pytest.fixture
async def caller(start: Start, hermes: ChatTemplate) -> Server:
    return await start(template=hermes, answer="Let me see.\n" + CALLS + "<|im_end|>")


async def test_a_whole_response(talker: Server) -> None:
    whole = await ask(talker, instructions="Be brief.", metadata={"a": "b"}, model="any", user="me",
                      max_output_tokens=1000, temperature=0.5, prompt_cache_key="k")
    Response.model_validate(whole)
    assert whole["id"].startswith("resp_")
    [item] = whole["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}]
    assert {name: whole[name] for name in ("status", "model", "metadata", "instructions", "temperature", "store",
                                           "user", "prompt_cache_key", "error", "incomplete_details")} == {
        "status": "completed", "model": "any", "metadata": {"a": "b"}, "instructions": "Be brief.",
        "temperature": 0.5, "store": False, "user": "me", "prompt_cache_key": "k", "error": None,
        "incomplete_details": None}
    usage = whole["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens"] == len(talker.fleet.answer.ids)


async def test_calls(caller: Server) -> None:
    whole = await ask(caller, tools=[WEATHER, TIME])
    text, weather, time = whole["output"]
    assert text["content"][0]["text"] == "Let me see."
    assert [(call["type"], call["name"], call["arguments"]) for call in (weather, time)] == [
        ("function_call", "weather", ARGUMENTS[0]), ("function_call", "time", ARGUMENTS[1])]
    assert weather["call_id"] != time["call_id"]
    assert whole["tools"] == [WEATHER, TIME]
    assert (whole["tool_choice"], whole["parallel_tool_calls"]) == ("auto", True)


async def test_namespaces(start: Start, hermes: ChatTemplate) -> None:
    """The model knows a tool by both names, the client by each of them."""
    call = '<tool_call>\n{"name": "home__weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
    server = await start(template=hermes, answer=call)
    tools = [{"type": "namespace", "name": "home", "description": "", "tools": [WEATHER, {"type": "mcp"}]}, TIME]
    [item] = (await ask(server, tools=tools))["output"]
    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "weather", "home")
    events = await stream(server, tools=tools)
    assert [event["name"] for event in events if event["type"].endswith("arguments.done")] == ["weather"]
    plain = [{**WEATHER, "name": "home__weather"}, TIME]
    numbers = [(await ask(server, tools=offered, input=[*HELLO, called, {
        "type": "function_call_output", "call_id": "a", "output": "Sunny"}]))["usage"]["input_tokens"]
        for offered, called in ((tools, {**item, "call_id": "a"}), (
            plain, {**item, "call_id": "a", "namespace": None, "name": "home__weather"}))]
    assert numbers[0] == numbers[1]
    for name, namespace, status in (("weather", "home", 200), ("weather", None, 400), ("time", None, 200)):
        chosen = {"type": "function", "name": name, "namespace": namespace}
        assert (await server.post(f"{URL}/input_tokens", {"tools": tools, "tool_choice": chosen})).status == status


async def test_one_conversation_has_one_prompt(start: Start, hermes: ChatTemplate) -> None:
    """By whichever API it comes."""
    server = await start(template=hermes)
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    tool = {"type": "function", "function": {name: WEATHER[name] for name in ("name", "description", "parameters")}}
    first = await chat(server, tools=[tool], messages=[
        {"role": "system", "content": "Be brief."}, *HELLO,
        {"role": "assistant", "content": "So:", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}])
    second = await ask(server, tools=[WEATHER], instructions="Be brief.", input=[
        *HELLO, {"role": "assistant", "content": [{"type": "output_text", "text": "So:"}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "Sunny"}])
    number = second["usage"]["input_tokens"]
    assert number == first["usage"]["prompt_tokens"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] == (number - 1) // 16 * 16


async def test_an_answer_that_is_cut(caller: Server) -> None:
    number = len(await caller.tokenizer.encode('Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city'))
    whole = await ask(caller, tools=[WEATHER], max_output_tokens=number)
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in whole["output"]] == ["completed", "incomplete"]
    events = await stream(caller, tools=[WEATHER], max_output_tokens=number)
    assert events[-1]["type"] == "response.incomplete"
    assert lasting(events[-1]["response"]) == lasting(whole)


async def test_a_probe(talker: Server) -> None:
    """As agents send it to see whether there is a server."""
    for content in ("", []):
        assert (await ask(talker, input=content, max_output_tokens=1))["status"] == "incomplete"


async def test_what_codex_sends(caller: Server) -> None:
    events = await stream(
        caller, model="gpt-5-codex", instructions="You are Codex.", store=False, parallel_tool_calls=False,
        input=[{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        tools=[WEATHER, {"type": "web_search", "external_web_access": False}, {"type": "image_generation"},
               {"type": "namespace", "name": "mcp", "description": "", "tools": [TIME]}],
        tool_choice="auto", reasoning={"effort": "medium", "summary": "auto"}, prompt_cache_key="abc",
        include=["reasoning.encrypted_content"], text={"verbosity": "low"}, client_metadata={"a": "b"})
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert [tool["type"] for tool in response["tools"]] == ["function", "namespace"]
    assert response["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert response["text"] == {"verbosity": "low", "format": {"type": "text"}}
    models = await (await caller.client.get("/v1/models?client_version=0.50.0")).json()
    assert (models["models"], [model["id"] for model in models["data"]]) == ([], ["demo"])


async def test_logprobs(talker: Server) -> None:
    fields: dict[str, Any] = {"top_logprobs": 1, "include": ["message.output_text.logprobs"]}
    whole = await ask(talker, **fields)
    Response.model_validate(whole)
    logprobs = whole["output"][0]["content"][0]["logprobs"]
    assert len(logprobs) == len(talker.fleet.answer.ids) - 1  # the end has no text
    assert logprobs[0]["top_logprobs"][0]["logprob"] == -0.5
    events = await stream(talker, **fields)
    assert [each for event in events if event["type"] == "response.output_text.delta"
            for each in event["logprobs"]] == logprobs


async def test_structured_output(start: Start, demo: ChatTemplate, grammars: GrammarCompiler) -> None:
    server = await start(answer='{"city":"Rome"}<|im_end|>', template=demo, grammars=grammars)
    async with openai_client(server) as client:
        answer = await client.responses.parse(model="any", input="Hello", text_format=City)
        assert answer.output_parsed == City(city="Rome")
        async with client.responses.stream(model="any", input="Hello", text_format=City) as events:
            final = await events.get_final_response()
        assert final.output_parsed == City(city="Rome")
    assert server.fleet.masks
    assert (await ask(server, text={"format": {"type": "json_object"}}))["text"]["format"] == {"type": "json_object"}


async def test_openais_client(caller: Server) -> None:
    async with openai_client(caller) as client:
        whole = await client.responses.create(model="any", input="Hello", tools=[WEATHER])
        assert whole.output_text == "Let me see."
        kinds = []
        async with client.responses.stream(model="any", input="Hello", tools=[WEATHER]) as events:
            async for event in events:
                kinds.append(event.type)
            final = await events.get_final_response()
        assert [item.type for item in final.output] == ["message", "function_call", "function_call"]
        assert kinds[0] == "response.created"
        again = await client.responses.create(model="any", input=[
            *HELLO, *whole.output, {"type": "function_call_output", "call_id": whole.output[1].call_id, "output": "a"}])
        assert again.status == "completed"
        number = await client.responses.input_tokens.count(model="any", input="Hello", tools=[WEATHER])
        assert number.input_tokens == whole.usage.input_tokens


HOSTILE: list[tuple[dict[str, Any], str | None]] = [
    ({"input": 5}, "input"), ({"input": [5]}, "input[0]"), ({"input": [{"role": 1}]}, "input[0].role"),
    ({"input": [{}] * 10_001}, "input"), ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, None),
    ({"max_output_tokens": 0}, "max_output_tokens"), ({"top_logprobs": 21}, "top_logprobs"),
    ({"include": ["x"]}, "include[0]"), ({"truncation": "x"}, "truncation"), ({"tools": {}}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"), ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"tools": [WEATHER], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": "x"}, "tool_choice"), ({"tool_choice": "required"}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format"), ({"text": {"format": {}}}, "text.format.type"),
    ({"conversation": "conv_1"}, "conversation"), ({"prompt": {"id": "a"}}, "prompt"),
    ({"max_tokens": 5}, "max_tokens"), ({"n": 2}, "n"), ({"temperature": -1}, "temperature"),
    ({"reasoning": {"effort": "x"}}, "reasoning.effort"), ({"tools": [WEATHER] * 600}, "tools"),
]


async def test_hostile_bodies(caller: Server) -> None:
    for fields, param in HOSTILE:
        for more in ({}, {"stream": True}):
            response = await caller.post(URL, {"input": "Hello", **more, **fields})
            assert response.status == 400, (fields, await response.text())
            error = (await response.json())["error"]
            assert error["message"]
            assert param is None or error["param"] == param, (fields, error)
    await caller.until_idle()


async def test_truncation(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    many = [{"role": "user", "content": f"Message {number}. " * 40} for number in range(100)]
    refused = await server.post(URL, {"input": many})
    assert refused.status == 400
    whole = await ask(server, input=[*many, *HELLO], truncation="auto", instructions="Be brief.", max_output_tokens=8)
    assert LIMITS.max_input_tokens - 400 < whole["usage"]["input_tokens"] <= LIMITS.max_input_tokens


async def test_no_template(server: Server) -> None:
    async with openai_client(server) as client:
        with pytest.raises(openai.BadRequestError, match="template not found"):
            await client.responses.create(model="any", input="Hello")
