"""Chat templates that come with requests, where the server takes them."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.router.chat.given_templates import MAX_KNOWN, MAX_TEMPLATE, GivenTemplates
from penstock.router.chat.template import ChatTemplate
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import HELLO, PROMPT, TIME, WEATHER, chat, refusal, rendered
from tests.router.api.openai.test_chat_tools import CALLS, EXPECTED, functions

OWN = "{{ bos_token }}{% for message in messages %}[{{ message.role }}: {{ message.content }}]{% endfor %}{{ name }}>"
FLAG = ("`chat_template` must be the name of one of the model's templates: texts of templates are taken by servers "
        "with --trust-request-chat-template")


@pytest.fixture(scope="module")
def given() -> Iterator[GivenTemplates]:
    templates = GivenTemplates({"bos_token": "<s>"})
    yield templates
    templates.close()


async def test_it_writes_the_prompt(start: Start, demo: ChatTemplate, given: GivenTemplates) -> None:
    """With the model's special tokens and the request's variables, beside the model's template and without one."""
    for template in (demo, None):
        server = await start(template=template, given_templates=given)
        told = await rendered(server, chat_template=OWN, chat_template_kwargs={"name": "me"})
        assert told == "<s>[user: Hello]me>"
        assert (await chat(server, chat_template=OWN, max_tokens=1))["usage"]["prompt_tokens"] == len(
            await server.tokenizer.encode("<s>[user: Hello]>"))
    server = await start(template=demo, given_templates=given)
    assert await rendered(server) == await rendered(server, chat_template="default") == PROMPT
    begun = [*HELLO, {"role": "assistant", "content": "It "}]
    assert await rendered(server, chat_template=OWN, messages=begun) == "<s>[user: Hello][assistant: It "


async def test_its_text_tells_how_tools_are_called(start: Start, demo: ChatTemplate, given: GivenTemplates) -> None:
    server = await start(template=demo, given_templates=given, answer=CALLS + "<|im_end|>")
    message = (await chat(server, tools=[WEATHER, TIME], chat_template=HERMES))["choices"][0]["message"]
    assert functions(message["tool_calls"]) == EXPECTED


@pytest.mark.parametrize(("text", "told", "code"), [
    ("{% if %}", "Template error: Expected an expression, got 'end of statement block', line 1", "invalid_value"),
    ("{{ raise_exception('no, thanks') }}", "Template error: no, thanks", "invalid_value"),
    ("{{ ''.__class__() }}", "Template error: access to attribute '__class__' of 'str' object is unsafe.",
     "invalid_value"),
    ("{" * (MAX_TEMPLATE + 1), f"`chat_template` must have at most {MAX_TEMPLATE} characters. Given: 65537",
     "string_above_max_length"),
])
async def test_a_wrong_one(start: Start, given: GivenTemplates, text: str, told: str, code: str) -> None:
    server = await start(given_templates=given)
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "chat_template": text})
    error: dict[str, Any] = (await response.json())["error"]
    assert (response.status, error["message"], error["code"]) == (400, told, code)
    assert await rendered(server, chat_template=OWN) == "<s>[user: Hello]>", "no other one is harmed"


async def test_one_that_does_not_end(start: Start, demo: ChatTemplate, given: GivenTemplates) -> None:
    """Costs a process of those that render given templates; the model's own go on."""
    server = await start(template=demo, given_templates=given)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    own = [each._processes[0].pid for each in demo._renderers.each if each._processes]
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "chat_template": endless})
    assert (response.status, "rendering took too long" in await response.text()) == (400, True)
    assert await rendered(server, chat_template=OWN) == "<s>[user: Hello]>"
    assert [each._processes[0].pid for each in demo._renderers.each if each._processes] == own


async def test_without_the_flag(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "chat_template": OWN})
    assert (response.status, await response.json()) == (400, refusal(FLAG, "chat_template", "unsupported_parameter"))
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "chat_template": "other"})
    assert "there is none called 'other'" in (await response.json())["error"]["message"]


async def test_one_is_looked_at_once(given: GivenTemplates) -> None:
    first = await given.read("{{ first }}")
    for number in range(MAX_KNOWN):
        assert await given.read("{{ first }}") is first
        await given.read(f"{{{{ other_{number} }}}}")
    for number in range(MAX_KNOWN):
        await given.read(f"{{{{ another_{number} }}}}")
    assert await given.read("{{ first }}") is not first, "as many are kept as there may be"


def test_nothing_runs_before_one_comes() -> None:
    templates = GivenTemplates({})
    assert not any(each._processes for each in templates._renderers.each)
    assert templates._renderers.describe("{{ a }}{{ messages }}").variables[""] == {"a", "messages"}
    assert sum(len(each._processes) for each in templates._renderers.each) == 1
    templates.close()
