"""Every template renders every conversation as transformers' `apply_chat_template` does, or fails as it does there."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from penstock.router.chat.template import ChatTemplate
from penstock.router.errors import TemplateError
from tests.router.chat.conversations import CONVERSATIONS, QUESTION
from tests.router.chat.templates import FAILING, TEMPLATES, TODAY
from tests.tiny_models import DEMO_MODEL

TOKENS = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "image_token": "<image>"}
MARK = "CONTINUE_FINAL_MESSAGE_TAG"
"""What transformers writes behind a message that is to be continued, to find it in the text."""


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **TOKENS)


@pytest.fixture(scope="module")
def ours() -> ChatTemplate:
    """All of the templates by their names: to start a process that renders takes longer than to render."""
    return ChatTemplate(TEMPLATES | FAILING, TOKENS)


def expected(reference: PreTrainedTokenizerFast, source: str, messages: list[dict[str, Any]],
             options: dict[str, Any]) -> str:
    options = {"add_generation_prompt": not options.get("continue_final_message"), **options}
    text = reference.apply_chat_template(messages, chat_template=source, tokenize=False, **options)
    assert isinstance(text, str)
    return text.replace(MARK + " ", "").replace(MARK, "")  # which it leaves where a template writes a message twice


def outcome(render: Callable[[], str], is_cause_compared: bool) -> tuple[str, str]:
    """The text, or the words of the failure."""
    try:
        return "text", render()
    except Exception as error:
        return "failure", str(error).removeprefix("Template error: ") if is_cause_compared else ""


@pytest.mark.parametrize("name", TEMPLATES)
def test_template(reference, ours, name):
    source, rendered = TEMPLATES[name], set()
    for conversation, (messages, options) in CONVERSATIONS.items():
        is_cause_compared = not options.get("continue_final_message")
        wanted = outcome(partial(expected, reference, source, messages, options), is_cause_compared)
        render = partial(ours.render, messages, chat_template=name, **options)
        assert outcome(render, is_cause_compared) == wanted, conversation
        rendered.add(wanted)
    assert len([kind for kind, _ in rendered if kind == "text"]) >= 2, "nearly all conversations are refused"


@pytest.mark.parametrize("name", FAILING)
def test_failing_template(reference, ours, name):
    """The sentence is Jinja's, beside Python's own on recursion, which names what it was in."""
    source = FAILING[name]
    kind, cause = outcome(partial(expected, reference, source, QUESTION, {}), True)
    assert kind == "failure"
    with pytest.raises(TemplateError) as refusal:
        ours.render(QUESTION, chat_template=name)
    assert str(refusal.value).startswith(f"Template error: {cause.partition(' while')[0]}")
    assert refusal.value.body()["error_type"] == "template_error"


def test_strftime_now(reference):
    """The clock moves on, so the reference is asked before and after."""
    ours = ChatTemplate({"default": TODAY}, TOKENS)
    before, text = expected(reference, TODAY, QUESTION, {}), ours.render(QUESTION)
    assert text in (before, expected(reference, TODAY, QUESTION, {}))


def test_namespace_takes_no_private_name():
    source = "{{ namespace(_a=1) }}"
    with pytest.raises(TemplateError, match="a namespace takes no name that begins with an underscore"):
        ChatTemplate({"default": source}, TOKENS).render(QUESTION)


def test_there_is_a_template_for_each_construct():
    assert len(TEMPLATES) >= 30
    assert len(set(TEMPLATES.values())) == len(TEMPLATES)
