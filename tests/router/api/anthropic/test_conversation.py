"""From Anthropic's messages to those of a chat, of which the same prompt is made."""

from typing import Any

import pytest

from penstock.router.api.anthropic.bodies import CountBody
from penstock.router.api.anthropic.conversation import chat_messages, referred_tools
from penstock.router.api.anthropic.signatures import carried, signature
from penstock.router.api.anthropic.tools import read_offer
from penstock.router.errors import ToolError, ValidationError
from penstock.router.shapes import Body
from tests.router.api.anthropic.talks import HELLO, WEATHER
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import rendered

BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.e8f; cc_entrypoint=sdk-cli;"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Åbo", "days": [1, {"a": None}]}}


def text(value: str, **more: object) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def user(*blocks: object) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def result(content: object, **more: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


def read(messages: object, **fields: object) -> CountBody:
    return CountBody.model_validate({"model": "m", "messages": messages, **fields})


def written(messages: object, **fields: object) -> list[dict[str, Any]]:
    return [plain(message) for message in chat_messages(read(messages, **fields))]


def plain(message: Body) -> dict[str, Any]:
    return message.model_dump(exclude_none=True)


@pytest.mark.parametrize(("system", "found"), [
    ("Be brief.", "Be brief."), ([text("Be "), text("brief.", cache_control={"type": "ephemeral"})], "Be brief."),
    ([BILLING, text("Be brief.")], "Be brief."), (f"{BILLING['text']}\nBe brief.", "Be brief."),
    ([BILLING], None), ("", None), ([], None), (None, None)])
def test_the_system_prompt(system: object, found: str | None) -> None:
    """Without Claude Code's line that differs from request to request."""
    first = [] if found is None else [{"role": "system", "content": found}]
    assert written(HELLO, system=system) == [*first, *HELLO]


@pytest.mark.parametrize(("messages", "found"), [
    ([user(text("a"), text("b"))], [{"role": "user", "content": "ab"}]),
    ([user(text("a")), user(text("b"), text("c"))], [{"role": "user", "content": "a\n\nbc"}]),
    ([user()], [{"role": "user", "content": ""}]),
    ([assistant(text("a")), {"role": "assistant", "content": "b"}], [{"role": "assistant", "content": "a\n\nb"}]),
    ([*HELLO, {"role": "system", "content": [text("a"), text("b")]}, *HELLO],
     [*HELLO, {"role": "system", "content": "ab"}, *HELLO]),
    ([user(text("a"), result("b"), text("c"))],
     [{"role": "user", "content": "a"}, {"role": "tool", "content": "b", "tool_call_id": "toolu_1"},
      {"role": "user", "content": "c"}]),
    ([user(result([text("a"), text("b")]), result(None))],
     [{"role": "tool", "content": "ab", "tool_call_id": "toolu_1"},
      {"role": "tool", "content": "", "tool_call_id": "toolu_1"}]),
    ([user(result("no such city", is_error=True), result("Error: none", is_error=True))],
     [{"role": "tool", "content": "Error: no such city", "tool_call_id": "toolu_1"},
      {"role": "tool", "content": "Error: none", "tool_call_id": "toolu_1"}]),
    ([assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, text("a"),
                {"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "ah"}, text("b"))],
     [{"role": "assistant", "content": "ab", "reasoning_content": "hm\n\nah"}]),
    ([assistant({"type": "thinking", "thinking": "", "signature": signature("hm", is_shown=False)})],
     [{"role": "assistant", "content": "", "reasoning_content": "hm"}]),
    ([assistant(CALL)],
     [{"role": "assistant", "tool_calls": [{"id": "toolu_1", "type": "function", "function": {
         "name": "weather", "arguments": {"city": "Åbo", "days": [1, {"a": None}]}}}]}]),
])
def test_messages(messages: object, found: object) -> None:
    assert written(messages) == found


@pytest.mark.parametrize(("messages", "sentence"), [
    ([user(text("a"), {"type": "image", "source": {}})],
     '`messages[0].content[1]` must be of type text or tool_result, this model takes nothing else. Given: "image"'),
    ([*HELLO, user(result([{"type": "document"}]))],
     '`messages[1].content[0].content[0]` must be of type text or tool_reference, this model takes nothing else. '
     'Given: "document"'),
    ([assistant({"type": "server_tool_use"})], 'must be of type text or thinking or redacted_thinking or tool_use'),
    ([{"role": "system", "content": [{"type": "image"}]}], "must be of type text, this"),
    ([user({"type": "text"})], "`messages[0].content[0]` must have `text`"),
    ([user({"type": "tool_result"})], "`messages[0].content[0]` must have `tool_use_id`"),
    ([assistant({**CALL, "id": None})], "`messages[0].content[0]` must have `id`"),
    ([assistant({**CALL, "name": None})], "`messages[0].content[0]` must have `name`"),
    ([assistant({**CALL, "input": None})], "`messages[0].content[0]` must have `input`"),
])
def test_refusals(messages: object, sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        written(messages)
    assert sentence in caught.value.reason


@pytest.mark.parametrize("thoughts", ["", "hm", "Öß 😀\n", "\ud800", "a" * 10_000])
def test_signatures(thoughts: str) -> None:
    """Those of shown thoughts carry none, and those of others are not read."""
    assert carried(signature(thoughts, is_shown=False)) == thoughts
    assert carried(signature(thoughts, is_shown=True)) == ""
    assert len(signature(thoughts, is_shown=True)) == 32


@pytest.mark.parametrize("other", ["", "EqQBCkYIBxgCIkA", "thoughts.é", "thoughts.a", "thoughts.//8="])
def test_signatures_of_others(other: str) -> None:
    assert carried(other) == ""


SEARCH = {"type": "web_search_20260318", "name": "web_search", "max_uses": 2}
LATER = {**WEATHER, "name": "later", "defer_loading": True}


def names(tools: object, choice: object = None, referred: tuple[str, ...] = ()) -> tuple[list[str], bool, bool] | None:
    body = read(HELLO, tools=tools, tool_choice=choice)
    offer = read_offer(body.tools, body.tool_choice, referred)
    return offer and ([tool.name for tool in offer.tools], offer.must_call, offer.is_parallel)


def test_tools() -> None:
    """Of other kinds than those that clients run are skipped."""
    other = {**WEATHER, "type": "custom", "name": "other", "cache_control": {"type": "ephemeral"}}
    assert names([WEATHER, SEARCH, other, LATER]) == (["weather", "other"], False, True)
    assert names([WEATHER, LATER], referred=("later",)) == (["weather", "later"], False, True)
    assert names([SEARCH]) is None
    assert names([WEATHER], {"type": "none"}) is None
    assert names([WEATHER], {"type": "auto", "disable_parallel_tool_use": True}) == (["weather"], False, False)
    assert names([WEATHER, other], {"type": "any"}) == (["weather", "other"], True, True)
    assert names([WEATHER, other], {"type": "tool", "name": "other"}) == (["other"], True, True)


@pytest.mark.parametrize(("tools", "choice", "sentence"), [
    ([SEARCH], {"type": "any"}, "`tool_choice` of type any needs `tools` of type custom"),
    ([WEATHER], {"type": "tool"}, "`tool_choice` of type tool must have `name`"),
    ([WEATHER], {"type": "tool", "name": "web_search"}, "Tool with name web_search not found"),
    ([{"name": "a"}], None, "`tools[0]` must have `input_schema`"),
    ([SEARCH, {"input_schema": {}}], None, "`tools[1].name` must have 1 to 128 characters. Given: 0"),
    ([{"name": "a", "input_schema": {"type": "string"}}], None, "`tools[0].input_schema` must be a schema of type"),
])
def test_refused_tools(tools: object, choice: object, sentence: str) -> None:
    with pytest.raises((ValidationError, ToolError)) as caught:
        names(tools, choice)
    assert sentence in caught.value.reason


def test_references_to_tools() -> None:
    reference = {"type": "tool_reference", "tool_name": "later"}
    body = read([user(result([reference]), result("a"))])
    assert referred_tools(body.messages) == {"later"}
    assert plain(chat_messages(body)[0])["content"] == "The tool later can be called now.\n"


@pytest.fixture
async def server(start: Start, hermes: Any) -> Server:
    return await start(template=hermes)


async def prompt(server: Server, **fields: Any) -> tuple[int, ...]:
    response = await server.post("/v1/messages", {"model": "tgi", "max_tokens": 1, **fields})
    assert response.status == 200, await response.text()
    chunk = next(plan.rows for plan in reversed(server.fleet.plans) if plan.rows[0].initial_state is not None)[0]
    return tuple(chunk.token_ids)


async def test_the_prompt_is_that_of_a_chat(server: Server) -> None:
    """Whatever API the conversation comes by."""
    call = {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Åbo"}'}}
    theirs = await rendered(server, messages=[
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": [text("Hel"), text("lo")]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Fog"}, {"role": "user", "content": "And now?"}],
        tools=[{"type": "function", "function": {"name": "weather", "description": "Of a city.",
                                                 "parameters": WEATHER["input_schema"]}}])
    ours = await prompt(server, system=[BILLING, text("Be brief.")], tools=[WEATHER, SEARCH], messages=[
        user(text("Hel"), text("lo")), assistant({**CALL, "input": {"city": "Åbo"}}),
        user(result("Fog"), text("And now?", cache_control={"type": "ephemeral"}))])
    assert ours == await server.tokenizer.encode(theirs, add_special_tokens=False)


async def test_an_answer_goes_on_with_a_begun_one(server: Server) -> None:
    ids = await prompt(server, messages=[*HELLO, {"role": "assistant", "content": "The answer is ("}])
    assert server.tokenizer.decode(ids).endswith("<|im_start|>assistant\nThe answer is (")
