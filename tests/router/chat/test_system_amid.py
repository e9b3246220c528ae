"""Messages of the system amid a conversation, in templates that write, drop, move or refuse them."""

from collections.abc import Iterator

import pytest

from penstock.router.chat.conversation import Conversation
from penstock.router.chat.messages import Message
from penstock.router.chat.system_amid import folded, roles_amid
from penstock.router.chat.template import ChatTemplate
from tests.router.api.chat_templates import HERMES

ANSWER = "{% if add_generation_prompt %}<assistant>{% endif %}"
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}" + ANSWER
DROPS = ("{% for m in messages %}{% if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}{% endif %}"
         "{% endfor %}") + ANSWER
MOVES = ("{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
         "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}") + ANSWER
REFUSES = ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
           "<{{ m.role }}>{{ m.content }}{% endfor %}") + ANSWER
TALK = [("system", "a"), ("user", "b"), ("system", "c"), ("assistant", "d"), ("system", "e"), ("user", "f")]
FOLDED = "b\n\n<system>\nc\n</system><assistant>d<user><system>\ne\n</system>\n\nf<assistant>"


@pytest.fixture
def templates() -> Iterator[list[ChatTemplate]]:
    made: list[ChatTemplate] = []
    yield made
    for template in made:
        template.close()


@pytest.mark.parametrize(("source", "prompt"), [
    (PLAIN, "<system>a<user>b<system>c<assistant>d<system>e<user>f<assistant>"), (DROPS, f"<system>a<user>{FOLDED}"),
    (MOVES, f"a<user>{FOLDED}"), (REFUSES, f"<system>a<user>{FOLDED}")])
async def test_the_prompt(templates: list[ChatTemplate], source: str, prompt: str) -> None:
    templates.append(ChatTemplate({"default": source}, {}))
    messages = [Message(role=role, content=text) for role, text in TALK]
    conversation = await Conversation.read(templates[0], messages, None).with_system_amid()
    assert await conversation.prompt({}, None, None) == prompt
    assert await conversation.with_system_amid() is conversation


async def test_a_template_for_tools_is_asked_with_tools(templates: list[ChatTemplate]) -> None:
    templates.append(ChatTemplate({"default": REFUSES, "tool_use": HERMES}, {}))
    assert await templates[0].keeps_places("system", None, [])
    assert not await templates[0].keeps_places("system", None, None)


def test_what_stands_amid() -> None:
    head = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}]
    assert roles_amid(head) == set()
    talk = [*head, {"role": "tool", "content": "c"}, {"role": "developer", "content": "d"}]
    assert roles_amid(talk) == {"developer"}
    assert folded(talk, {"developer"}) == [
        *talk[:3], {"role": "user", "content": "<system>\nd\n</system>"}]
    assert folded(talk, set()) == talk
