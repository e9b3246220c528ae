"""Fields that OpenAI's bodies do not have: refused by name if they would change the answer, ignored otherwise."""

import pytest

from penstock.router.api.openai.bodies import ChatBody, CompletionBody
from penstock.router.api.openai.other_fields import IGNORED, REFUSED_IN_CHATS, REFUSED_IN_COMPLETIONS
from penstock.router.chat.template import ChatTemplate
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
    for name, neutral in refused.items():
        response = await server.post(path, {**body, name: "asked"})
        assert response.status == 422, name
        message = (await response.json())["error"]["message"]
        assert message.startswith(f"Input validation error: `{name}`")
        assert message.endswith(" is not supported")
        for value in (None, *neutral):
            assert (await server.post(path, {**body, name: value})).status == 200, (name, value)


@pytest.mark.parametrize("path", ROUTES)
async def test_what_changes_nothing_is_ignored(server: Server, path: str) -> None:
    body, _, _ = ROUTES[path]
    plain = (await (await server.post(path, body)).json())["choices"]
    for name in (*IGNORED, "a_name_that_nobody_knows"):
        response = await server.post(path, {**body, name: {"asked": [1]}})
        assert (response.status, (await response.json())["choices"]) == (200, plain), name


async def test_the_prompt_of_a_chat_follows_the_same_rule(server: Server) -> None:
    response = await server.post("/chat_tokenize", {"messages": HELLO, "documents": [{"text": "a"}]})
    assert (response.status, (await response.json())["error"]) == (
        422, "Input validation error: `documents`, other than [], is not supported")
    for name, value in (("user", "me"), ("best_of", 2)):
        assert (await server.post("/chat_tokenize", {"messages": HELLO, name: value})).status == 200, "no other prompt"


@pytest.mark.parametrize("path", ROUTES)
def test_a_field_is_served_or_refused_or_ignored(path: str) -> None:
    _, schema, refused = ROUTES[path]
    assert not schema.model_fields.keys() & refused.keys()
    assert not (schema.model_fields.keys() | refused.keys()) & IGNORED.keys()
