"""Writes the prompts of conversations by a chat template."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from penstock.offline.event_loop import in_daemon_thread
from penstock.offline.failures import translated
from penstock.offline.model import Model
from penstock.offline.prompts import Prompt
from penstock.router.chat.template import ChatTemplate
from penstock.router.errors import TemplateError

Messages = Sequence[Mapping[str, Any]]

SEVERAL = "`{name}` of chat_template_kwargs is an argument of its own"
_OURS = {"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"}


def render_all(
    model: Model, messages: Messages | Sequence[Messages], source: str | None,
    tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any], *, add_generation_prompt: bool,
    continue_final_message: bool,
) -> list[Prompt]:
    """Returns the prompts of one conversation, or of several. `source` is that of a template to be used instead of the
    model's. Raises ValueError for a conversation that the template refuses."""
    if taken := _OURS & variables.keys():
        raise ValueError(SEVERAL.format(name=min(taken)))
    if add_generation_prompt and continue_final_message:
        raise ValueError("`add_generation_prompt` and `continue_final_message` cannot both be true")
    conversations = [_checked(each) for each in _split(messages)]
    options: dict[str, Any] = {
        **variables, "tools": None if tools is None else [*map(dict, tools)],
        "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message}
    with translated():
        return [Prompt(text, add_special_tokens=False)
                for text in model.loop.run(_render(model, conversations, source, options))]


def _split(messages: Messages | Sequence[Messages]) -> Sequence[Messages]:
    if not isinstance(messages, Sequence) or not messages:
        raise TypeError("messages must be a list of messages, or a list of such lists")
    return [cast(Messages, messages)] if isinstance(messages[0], Mapping) else cast(Sequence[Messages], messages)


def _checked(conversation: Messages) -> list[dict[str, Any]]:
    for message in conversation:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TypeError(f"a message must be a dict with a `role`. Given: {message!r:.100}")
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            if not isinstance(part, Mapping) or part.get("type", "text") != "text":
                raise ValueError(f"a message's content may have texts alone. Given: {part!r:.100}")
    return [dict(message) for message in conversation]


async def _render(
    model: Model, conversations: Sequence[list[dict[str, Any]]], source: str | None, options: Mapping[str, Any]
) -> list[str]:
    template = model.service.template
    if source is not None:
        special = {} if template is None else template.special_tokens
        template = await in_daemon_thread(ChatTemplate, {"default": source}, special)
    if template is None:
        raise TemplateError("the model has no chat template; give one as `chat_template`")
    try:
        return await asyncio.gather(*(template.render_async(each, **options) for each in conversations))
    finally:
        if source is not None:
            template.close()
