"""The prompt of a conversation, and the variables that a request sets for its chat template."""

import time
from collections.abc import Mapping
from typing import Any

from penstock.router.chat.conversation import Conversation
from penstock.router.chat.messages import MAX_FIELDS
from penstock.router.errors import ValidationError
from penstock.router.generation.other_fields import REFUSED_IN_TEMPLATES, refuse_unsupported
from penstock.router.generation.service import Service
from penstock.router.limits import Limits

_OURS = {"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"}
"""Variables of templates that a request sets otherwise."""


async def write_prompt(
    service: Service, conversation: Conversation, variables: Mapping[str, Any], add_generation_prompt: bool | None,
    continue_final_message: bool | None,
) -> str:
    """Returns the prompt of a conversation, and tells the metrics how long it took. Raises ValidationError and
    TemplateError."""
    began_at = time.monotonic()
    try:
        return await conversation.prompt(variables, add_generation_prompt, continue_final_message)
    finally:
        service.metrics.rendered(time.monotonic() - began_at)


def truncation(asked: int | None, limits: Limits, max_new_tokens: int | None) -> int | None:
    """Returns how many tokens of a prompt are read, the last ones: for -1 as many as fit beside the answer."""
    if asked != -1:
        return asked
    return max(1, min(limits.max_input_tokens, limits.max_total_tokens - (max_new_tokens or 1)))


def check_variables(variables: Mapping[str, Any], conversation: Conversation) -> None:
    """Checks `chat_template_kwargs`. Raises ValidationError for one that is set otherwise, and for a setting of the
    answer that was put among them, unless the template reads it."""
    if len(variables) > MAX_FIELDS:
        raise ValidationError(f"`chat_template_kwargs` must have at most {MAX_FIELDS} variables. Given: "
                              f"{len(variables)}")
    if taken := _OURS & variables.keys():
        raise ValidationError(f"`chat_template_kwargs` cannot have `{min(taken)}`, which is a field of its own")
    unread = {name: value for name, value in variables.items() if not conversation.reads(name)}
    refuse_unsupported(unread, REFUSED_IN_TEMPLATES)
