"""From messages, and tools that are offered with them, to a prompt and the form in which the tools may be called."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.router.chat import past_thoughts
from penstock.router.chat.harmony_format import HARMONY, THINKING
from penstock.router.chat.messages import Message, read_messages
from penstock.router.chat.system_places import folded, kinds
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.thinking_format import taught_format
from penstock.router.chat.tools import prompt as tools_prompt
from penstock.router.chat.tools.call_format import CallFormat
from penstock.router.chat.tools.families import PLAIN, format_of
from penstock.router.chat.tools.offer import Offer
from penstock.router.errors import ValidationError


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in the words of a template, or of the one that is called `name`. `offer` are the tools that may be
    called, and `call_format` tells how calls are written; both are None if there can't be any calls."""

    template: ChatTemplate
    name: str | None
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    """Those that the template itself is told of."""
    offer: Offer | None
    call_format: CallFormat | None

    @classmethod
    def read(
        cls, template: ChatTemplate, messages: Sequence[Message], offer: Offer | None, name: str | None = None,
        tool_prompt: str | None = None, call_format: str = "auto",
    ) -> Self:
        """Reads a conversation. If the template knows nothing of tools, a message describes them, as in TGI. Otherwise
        calls have the format of this name, or that which the template teaches. Raises ValidationError and
        TemplateError."""
        source = template.source(name)
        told = past_thoughts.fitted(read_messages(messages, template, name), source)
        if not template.reads("tools", name):
            told = [tools_prompt.calls_as_text(message) for message in told]
            if offer is not None:
                described = tools_prompt.describe(offer.tools)
                told = tools_prompt.add_to_messages(told, f"{described}\n{tool_prompt or tools_prompt.PROMPT}")
            return cls(template, name, told, None, offer, None if offer is None else PLAIN)
        if offer is None:
            return cls(template, name, told, None, None, None)
        if tool_prompt:
            told = tools_prompt.add_to_messages(told, tool_prompt)
        is_harmony = call_format == "auto" and taught_format(source) is THINKING
        return cls(template, name, told, [tool.told for tool in offer.tools], offer,
                   HARMONY if is_harmony else format_of(source, call_format))

    def reads(self, variable: str) -> bool:
        """Tells whether the template reads a variable."""
        return self.template.reads(variable, self.name)

    async def with_system(self) -> Self:
        """Returns the conversation with the system's messages where the template has them, or as parts of the user's
        turns."""
        lost = {kind for kind in kinds(self.messages)
                if kind is not None and not await self.template.keeps_places(kind, self.name, self.tools)}
        return replace(self, messages=folded(self.messages, lost)) if lost else self

    async def prompt(
        self, variables: Mapping[str, Any], add_generation_prompt: bool | None, continue_final_message: bool | None
    ) -> str:
        """Returns the prompt; as in TGI, a last message of the assistant is continued unless that is said otherwise.
        Raises ValidationError, and TemplateError if the template refuses the conversation."""
        last = self.messages[-1]
        is_begun = last["role"] == "assistant" and bool(last.get("content")) and "tool_calls" not in last
        is_continued = continue_final_message
        if is_continued is None:
            is_continued = is_begun and not add_generation_prompt
        if is_continued and add_generation_prompt:
            raise ValidationError("`add_generation_prompt` and `continue_final_message` cannot both be true")
        return await self.template.render_async(
            self.messages, tools=self.tools, continue_final_message=is_continued, chat_template=self.name,
            add_generation_prompt=not is_continued and add_generation_prompt is not False, **variables)
