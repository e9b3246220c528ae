"""Messages of the system amid a conversation, in templates that write, drop, move or refuse them."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from penstock.router.chat.conversation import Conversation
from penstock.router.chat.messages import Message
from penstock.router.chat.system_places import Kind, folded, kinds
from penstock.router.chat.template import ChatTemplate
from penstock.router.errors import TemplateError
from tests.clients.environments import templates
from tests.router.api.chat_templates import HERMES

ANSWER = "{% if add_generation_prompt %}<assistant>{% endif %}"
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}" + ANSWER
DROPS = ("{% for m in messages %}{% if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}{% endif %}"
         "{% endfor %}") + ANSWER
MOVES = ("{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
         "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}") + ANSWER
KNOWS_NONE = ("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
              "<{{ m.role }}>{{ m.content }}{% endfor %}") + ANSWER
REFUSES = ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
           "<{{ m.role }}>{{ m.content }}{% endfor %}") + ANSWER
ENDS = {"bos_token": "<s>", "eos_token": "</s>"}
TALK = [("system", "a"), ("user", "b"), ("system", "c"), ("assistant", "d"), ("system", "e"), ("user", "f")]
FOLDED = "b\n\n<system>\nc\n</system><assistant>d<user><system>\ne\n</system>\n\nf<assistant>"


@pytest.fixture
def made() -> Iterator[list[ChatTemplate]]:
    templates: list[ChatTemplate] = []
    yield templates
    for template in templates:
        template.close()


@pytest.mark.parametrize(("source", "prompt"), [
    (PLAIN, "<system>a<user>b<system>c<assistant>d<system>e<user>f<assistant>"), (DROPS, f"<system>a<user>{FOLDED}"),
    (MOVES, f"a<user>{FOLDED}"), (REFUSES, f"<system>a<user>{FOLDED}"),
    (KNOWS_NONE, f"<user>a\n\n{FOLDED}")])
async def test_the_prompt(made: list[ChatTemplate], source: str, prompt: str) -> None:
    made.append(ChatTemplate({"default": source}, {}))
    messages = [Message(role=role, content=text) for role, text in TALK]
    conversation = await Conversation.read(made[0], messages, None).with_system()
    assert await conversation.prompt({}, None, None) == prompt
    assert await conversation.with_system() is conversation


async def test_a_template_for_tools_is_asked_with_tools(made: list[ChatTemplate]) -> None:
    made.append(ChatTemplate({"default": REFUSES, "tool_use": HERMES}, {}))
    assert await made[0].keeps_places(Kind("system", True), None, [])
    assert not await made[0].keeps_places(Kind("system", True), None, None)


def test_kinds() -> None:
    head = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}]
    talk = [*head, {"role": "tool", "content": "c"}, {"role": "developer", "content": "d"}]
    assert kinds(talk) == [Kind("system", False), Kind("developer", False), None, Kind("developer", True)]
    assert folded(talk, {Kind("developer", True)}) == [*talk[:3], {"role": "user", "content": "<system>\nd\n</system>"}]
    assert folded(talk, {Kind("developer", False)}) == [head[0], {"role": "user", "content": "b"}, *talk[2:]]
    assert folded(talk, set()) == talk
    alone = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "user", "content": "c"}]
    assert folded(alone, {Kind("system", False)}) == [{"role": "user", "content": "a\n\nb"}, alone[2]]


@pytest.mark.slow
async def test_published_templates() -> None:
    """All write what the system says, in its place, where a conversation without it can be written."""
    texts = [f"{role}_{number}_SAYS" for number, (role, _) in enumerate(TALK)]
    talk = [Message(role=role, content=text) for (role, _), text in zip(TALK, texts, strict=True)]
    wrong, num_right = {}, 0
    for file in sorted(templates().glob("*.jinja")):
        with closing(ChatTemplate({"default": file.read_text()}, ENDS)) as template:
            try:
                await Conversation.read(template, [Message(role="user", content="a")], None).prompt({}, None, None)
            except TemplateError:
                continue
            conversation = await Conversation.read(template, talk, None).with_system()
            places = [*map((await conversation.prompt({}, None, None)).rfind, texts)]
        if -1 in places or places[1:] != sorted(places[1:]):
            wrong[file.stem] = places
        num_right += 1
    assert wrong == {}
    assert num_right > 50
