"""Bodies that nobody means well."""

import io
import json
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.router.api.anthropic.bodies import MessagesBody
from penstock.router.api.http.route import JSON
from tests.router.api.anthropic.talks import HELLO, WEATHER, answer, refusal
from tests.router.api.conftest import Server, Start, of_one_server

PART = {"type": "text", "text": "a"}


@pytest.fixture(scope="module")
def lasting_settings(hermes: Any, grammars: Any) -> dict[str, Any]:
    return {"template": hermes, "grammars": grammars}


@pytest.fixture
async def server(start: Start, hermes: Any) -> Server:
    return await start(template=hermes)


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


@of_one_server
@pytest.mark.parametrize(("fields", "sentence"), [
    ({"messages": [user("a")] * 10_001}, "up to 10000 messages and blocks in all. Given: 10001"),
    ({"messages": [user([PART] * 10_000)]}, "Given: 10001"),
    ({"messages": [user([{"type": "tool_result", "tool_use_id": "a", "content": [PART] * 9_999}])]}, "Given: 10001"),
    ({"system": [PART] * 10_001}, "system: invalid value: a list: supports up to 10000 blocks. Given: 10001"),
    ({"tools": [WEATHER] * 513}, "tools"),
    ({"messages": 5}, "messages: invalid type: integer `5`, expected a list"),
    ({"messages": [user(5)]}, "messages[0].content: invalid type: integer `5`"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role: invalid value"),
    ({"messages": [user([{"text": "a"}])]}, "messages[0].content[0]: missing field `type`"),
    ({"max_tokens": 0}, "`max_tokens` must be strictly positive"), ({"max_tokens": None}, "max_tokens: invalid type"),
    ({"max_tokens": 10**30}, "max_tokens"), ({"temperature": -1}, "`temperature` must be >= 0.0. Given: -1"),
    ({"top_p": 2}, "`top_p` must be"), ({"top_k": -1}, "top_k: invalid value"),
    ({"top_k": 2**31}, "top_k: invalid value"),
    ({"stop_sequences": ["a"] * 5}, "`stop_sequences` supports up to 4 stop sequences. Given: 5"),
    ({"stop_sequences": [""]}, "`stop_sequences` sequences cannot be empty"),
    ({"stop_sequences": ["a" * 1025]}, "`stop_sequences` sequences must have <= 1024 characters"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens: invalid value"),
    ({"thinking": {"type": "always"}}, "thinking.type: invalid value"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": 5}}}}, "output_config.format: grammar is"),
    ({"output_config": {"effort": "none"}}, "output_config.effort: invalid value"),
    ({"tool_choice": {"type": "tool", "name": "x"}, "tools": [WEATHER]}, "tool_choice: Tool with name x not found"),
    ({"container": "container_1"}, "`container` is not supported"),
    ({"mcp_servers": [{"url": "http://localhost"}]}, "`mcp_servers`, other than [], is not supported"),
    ({"seed": 5}, "`seed` is not supported"), ({"min_p": 0.5}, "`min_p`, other than 0, is not supported"),
], ids=lambda value: json.dumps(value)[:40])
async def test_refused_bodies(lasting_server: Server, fields: Any, sentence: str) -> None:
    status, kind, message = await refusal(lasting_server, **fields)
    assert (status, kind) == (400, "invalid_request_error"), message
    assert sentence in message
    assert len(message) < 300
    assert await answer(lasting_server)


@of_one_server
@pytest.mark.parametrize("fields", [
    {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"metadata": {"user_id": "a"}},
    {"service_tier": "standard_only"}, {"thinking": {"type": "adaptive", "display": "omitted"}},
    {"thinking": {"type": "enabled", "budget_tokens": 31_999}}, {"thinking": {"type": "disabled"}},
    {"output_config": {"effort": "max"}}, {"unknown": [5]}, {"top_k": 0, "top_p": 1.0, "temperature": 1},
    {"temperature": 0}, {"container": None, "mcp_servers": []}, {"model": "claude-opus-4-5"},
    {"tools": [{"type": "web_search_20260318", "name": "web_search"}]}, {"stop_sequences": None, "stream": None},
], ids=lambda value: json.dumps(value)[:40])
async def test_fields_that_are_taken(lasting_server: Server, fields: Any) -> None:
    assert (await answer(lasting_server, **fields))["stop_reason"] == "end_turn"


@of_one_server
@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"5", b'{"messages": ' + b"[" * 2000, b'{"messages": [' + b'{"content": [' * 400,
    json.dumps({"model": "m", "max_tokens": 1, "messages": HELLO, "tools": [{
        "name": "a", "input_schema": {"type": "object", "a": json.loads("[" * 240 + "]" * 240)}}]}).encode(),
])
async def test_what_is_no_body(lasting_server: Server, body: bytes) -> None:
    response = await lasting_server.client.post("/v1/messages", data=io.BytesIO(body), headers={"content-type": JSON})
    failure = await response.json()
    assert response.status in (200, 400), failure
    assert response.status == 200 or failure["error"]["type"] == "invalid_request_error"
    assert await answer(lasting_server)


@pytest.mark.parametrize("body", [
    {"messages": [1] * 5000}, {"messages": [{}] * 5000}, {"messages": [user([1] * 5000)]},
    {"messages": [user([{"type": "tool_result", "content": [1] * 5000}])]}, {"messages": HELLO, "tools": [1] * 100},
    {"messages": HELLO, "system": [1] * 5000}, {"messages": HELLO, "stop_sequences": [1] * 5000},
], ids=lambda value: json.dumps(value)[:40])
def test_of_many_wrong_items_the_first_is_enough(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        MessagesBody.model_validate({"model": "m", "max_tokens": 1, **body})
    assert caught.value.error_count() <= 3


@pytest.mark.parametrize("rest", ["}}\n</tool_call>", ', "city": "cu'])
async def test_arguments_with_numbers_of_any_size(start: Start, hermes: Any, rest: str) -> None:
    """The whole message has them as the model wrote them, as the pieces of a stream do."""
    call = '<tool_call>\n{"name": "weather", "arguments": {"number": 123456789012345678901234567890' + rest
    server = await start(template=hermes, answer=f"{call}<|im_end|>")
    [block] = (await answer(server, tools=[WEATHER]))["content"]
    assert block["input"] == {"number": 123456789012345678901234567890}


async def test_a_whole_body_is_counted(server: Server) -> None:
    """Clients send the body of a message; what has no place there either is refused as there."""
    body = {"model": "tgi", "messages": HELLO, "max_tokens": 5, "stop_sequences": ["a"], "temperature": 0.5, "top_k": 5}
    response = await server.post("/v1/messages/count_tokens", body)
    assert response.status == 200, await response.text()
    response = await server.post("/v1/messages/count_tokens", {**body, "container": "a"})
    assert (response.status, "`container`" in await response.text()) == (400, True)
