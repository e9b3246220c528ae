"""Fields that OpenAI's bodies do not have: refused by name if they would change the answer, ignored otherwise."""

import pytest

from penstock.router.api.anthropic.bodies import MessagesBody
from penstock.router.api.openai.bodies import ChatBody, CompletionBody
from penstock.router.api.responses.bodies import ResponseBody
from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.other_fields import (
    IGNORED,
    REFUSED_IN_CHATS,
    REFUSED_IN_COMPLETIONS,
    REFUSED_IN_MESSAGES,
    REFUSED_IN_RESPONSES,
    Refused,
)
from penstock.router.shapes import Body
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO

ROUTES = {
    "/v1/completions": ({"prompt": "a", "max_tokens": 2, "temperature": 0}, CompletionBody, REFUSED_IN_COMPLETIONS),
    "/v1/chat/completions": ({"messages": HELLO, "max_tokens": 2, "temperature": 0}, ChatBody, REFUSED_IN_CHATS),
}


@pytest.fixture
async def server(start: Start, demo: ChatTemplate) -> Server:
    return await start(template=demo)


@pytest.mark.parametrize("path", ROUTES)
async def test_what_would_change_the_answer_is_refused_by_name(server: Server, path: str) -> None:
    body, _, refused = ROUTES[path]
    for name in refused:
        response = await server.post(path, {**body, name: "asked"})
        assert response.status in (400, 422), name
        message = (await response.json())["error"]["message"]
        assert f"`{name}`" in message
        assert message.endswith(" is not supported")


@pytest.mark.parametrize("path", ROUTES)
async def test_what_asks_for_nothing_is_let_pass(server: Server, path: str) -> None:
    body, _, refused = ROUTES[path]
    plain = (await (await server.post(path, body)).json())["choices"]
    most = max(map(len, refused.values()))
    for number in range(most + 1):
        neutral = {name: (None, *values)[number] for name, values in refused.items() if number <= len(values)}
        response = await server.post(path, {**body, **neutral})
        assert (response.status, (await response.json()).get("choices")) == (200, plain), await response.text()


@pytest.mark.parametrize("path", ROUTES)
async def test_what_changes_nothing_is_ignored(server: Server, path: str) -> None:
    body, _, _ = ROUTES[path]
    plain = (await (await server.post(path, body)).json())["choices"]
    others = {name: {"asked": [1]} for name in [*IGNORED, "a_name_that_nobody_knows"]}
    response = await server.post(path, {**body, **others})
    assert (response.status, (await response.json())["choices"]) == (200, plain)


async def test_the_prompt_of_a_chat_follows_the_same_rule(server: Server) -> None:
    response = await server.post("/chat_tokenize", {"messages": HELLO, "system": "Be brief."})
    assert response.status == 422
    assert "`system`" in await response.text()
    for name, value in (("user", "me"), ("best_of", 2)):
        assert (await server.post("/chat_tokenize", {"messages": HELLO, name: value})).status == 200, "no other prompt"


@pytest.mark.parametrize("path", ROUTES)
def test_a_field_is_served_or_refused_or_ignored(path: str) -> None:
    _, schema, refused = ROUTES[path]
    assert not schema.model_fields.keys() & refused.keys()
    assert not (schema.model_fields.keys() | refused.keys()) & IGNORED.keys()


@pytest.mark.parametrize(("schema", "refused", "harmless"), [
    (CompletionBody, REFUSED_IN_COMPLETIONS, {"parallel_tool_calls", "include_reasoning"}),
    (ResponseBody, REFUSED_IN_RESPONSES, set()),
    (MessagesBody, REFUSED_IN_MESSAGES, {"parallel_tool_calls", "include_reasoning", "priority", "stream_options"})])
def test_no_route_drops_what_chats_have(schema: type[Body], refused: Refused, harmless: set[str]) -> None:
    assert ChatBody.model_fields.keys() - schema.model_fields.keys() - refused.keys() - IGNORED.keys() <= harmless
