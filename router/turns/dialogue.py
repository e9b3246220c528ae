"""A conversation as a client sends it, by whichever API, and the prompt that the model's template makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.router.chat.conversation import Conversation
from penstock.router.chat.messages import Message
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.tools.offer import Offer
from penstock.router.errors import TemplateError, ValidationError
from penstock.router.generation.prompts import check_variables, write_prompt
from penstock.router.generation.service import Service
from penstock.router.text.encoding import TokenizerError
from penstock.router.turns.thinking import NO_WISH, ThinkingWish


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The messages, the tools that may be called, and what is wished of the template: its name or its source, the
    text that tells of tools where it does not, its own variables, `fields`, which are variables that the API has as
    fields, and how it is to think.

    `add_generation_prompt` and `continue_final_message` are as in `Conversation.prompt`. With `keeps_system`
    messages of the system reach the model wherever they stand, whatever the template does with those.
    """

    messages: Sequence[Message]
    offer: Offer | None = None
    template: str | None = None
    tool_prompt: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    thinking: ThinkingWish = NO_WISH
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    keeps_system: bool = False

    async def written(self, service: Service) -> tuple[str, Conversation]:
        """Returns the prompt, and the conversation as the template has it. Raises ValidationError and TemplateError."""
        template, name = await self._template(service)
        conversation = Conversation.read(
            template, self.messages, self.offer, name, self.tool_prompt, service.limits.tool_call_parser)
        if self.keeps_system:
            conversation = await conversation.with_system()
        prompt = await write_prompt(service, conversation, self._all_variables(conversation),
                                    self.add_generation_prompt, self.continue_final_message)
        return prompt, conversation

    async def num_tokens(self, service: Service) -> int:
        """Returns the number of tokens of the prompt. Raises ValidationError and TemplateError."""
        prompt, _ = await self.written(service)
        try:
            return len(await service.tokenizer.encode(prompt, add_special_tokens=False))
        except TokenizerError as error:
            raise ValidationError(f"tokenizer error {error}") from error

    async def _template(self, service: Service) -> tuple[ChatTemplate, str | None]:
        """Returns the template that writes the prompt, and its name if it is one of several: the model's, or one whose
        text the client has sent."""
        own, asked = service.template, self.template
        if asked is not None and "{" in asked and (own is None or asked not in own.names):
            if service.given_templates is None:
                raise ValidationError("`chat_template` must be the name of one of the model's templates: texts of "
                                      "templates are taken by servers with --trust-request-chat-template",
                                      "unsupported_parameter")
            return await service.given_templates.read(asked), None
        if own is None:
            raise TemplateError("template not found")
        return own, asked

    def _all_variables(self, conversation: Conversation) -> dict[str, Any]:
        """Returns the template's own variables. A field that is one is refused if the template does not read it."""
        check_variables(self.variables, conversation)
        given = {name: value for name, value in self.fields.items() if value}
        for name in given:
            if not conversation.reads(name):
                raise ValidationError(f"`{name}` is not supported by this model's chat template",
                                      "unsupported_parameter")
        return {**self.thinking.variables(conversation, self.variables), **self.variables, **given}
