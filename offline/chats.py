"""Writes the prompts of conversations by a chat template."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, cast

import pydantic
from pydantic import Field

from penstock.offline.event_loop import EventLoop
from penstock.offline.failures import translated
from penstock.router.chat.conversation import Conversation
from penstock.router.chat.messages import Message
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.tool_bodies import ToolBody, read_tools
from penstock.router.chat.tools.offer import choose
from penstock.router.errors import RouterError, TemplateError
from penstock.router.generation.prompts import check_variables, write_prompt
from penstock.router.generation.service import Service
from penstock.router.shapes import Body, explain

log = logging.getLogger(__name__)

Messages = Sequence[Mapping[str, Any]]


class ChatBody(Body):
    """The messages of a conversation and the tools that may be called, as OpenAI's routes take them."""

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[ToolBody], Field(fail_fast=True)] = Field(default_factory=list)


def split(messages: Messages | Sequence[Messages]) -> Sequence[Messages]:
    """Returns the conversations of a call, which may be a single one."""
    if not isinstance(messages, Sequence):
        raise TypeError("messages must be a list of messages, or a list of such lists")
    is_single = len(messages) > 0 and isinstance(messages[0], Mapping)
    return [cast(Messages, messages)] if is_single else cast(Sequence[Messages], messages)


def render_all(
    service: Service, loop: EventLoop, conversations: Sequence[Messages], source: str | None,
    tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any], *, add_generation_prompt: bool,
    continue_final_message: bool,
) -> list[str]:
    """Returns the prompts of conversations, as the server's routes make them. `source` is that of a template to be used
    instead of the model's. Raises ValueError for a conversation that can't be read, or that the template refuses."""
    with translated(), _template(service, source) as template:
        read = [_read(service, template, each, tools or (), f"conversation {index}: " if len(conversations) > 1 else "")
                for index, each in enumerate(conversations)]
        if read:
            _check_variables(variables, read[0])

        async def write() -> list[str]:
            return await asyncio.gather(*(
                write_prompt(service, each, variables, add_generation_prompt, continue_final_message)
                for each in read))

        return loop.run(write())


@contextmanager
def _template(service: Service, source: str | None) -> Iterator[ChatTemplate]:
    """Yields the model's template, or one of this source. Raises TemplateError if there is none."""
    template = service.template
    if source is None:
        if template is None:
            raise TemplateError("the model has no chat template; give one as `chat_template`")
        yield template
        return
    own = ChatTemplate({"default": source}, {} if template is None else template.special_tokens)
    try:
        yield own
    finally:
        own.close()


def _read(
    service: Service, template: ChatTemplate, messages: Messages, tools: Sequence[Mapping[str, Any]], place: str
) -> Conversation:
    """Returns a conversation; `place` begins the sentence that says why it can't be read."""
    content = {"messages": [*map(_plain, messages)], "tools": [*map(_plain, tools)]}
    try:
        body = ChatBody.model_validate(content)
        offer = choose(read_tools(body.tools), "auto", is_parallel=True)
        return Conversation.read(
            template, body.messages, offer, call_format=service.limits.tool_call_parser)
    except pydantic.ValidationError as error:
        raise ValueError(place + explain(error.errors(include_url=False)[0], content)) from error
    except RouterError as error:
        raise ValueError(place + error.reason) from error


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _check_variables(variables: Mapping[str, Any], conversation: Conversation) -> None:
    """Refuses variables as the server does, and tells the log of those that change nothing."""
    check_variables(variables, conversation)
    for name in variables:
        if not conversation.reads(name):
            log.warning("`%s` of `chat_template_kwargs` has no effect: the chat template does not read it", name)
