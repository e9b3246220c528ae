"""Makes a generation's spec of a chat's body: its prompt, and the format in which tools may be called."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.manner import Manner
from penstock.router.api.openai.messages import MAX_FIELDS, read_messages
from penstock.router.api.openai.parameters import max_tokens, parameters
from penstock.router.api.openai.tools import read_offer
from penstock.router.chat import tools_prompt
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.tools import Offer
from penstock.router.chat.tools_format import PLAIN, CallFormat, native_format
from penstock.router.chat.tools_grammar import tools_grammar
from penstock.router.errors import TemplateError, ValidationError
from penstock.router.generation.other_fields import REFUSED_IN_CHATS, REFUSED_IN_TEMPLATES, refuse_unsupported
from penstock.router.generation.service import Service
from penstock.router.generation.spec import GenerationSpec
from penstock.router.grammar.compiler import MAX_SOURCE
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec

_OURS = {"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"}
"""Variables of templates that fields of the body set."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt, the tools that it offers, and how calls of them are written; both None if there can't be any calls."""

    prompt: str
    offer: Offer | None
    call_format: CallFormat | None


async def parse(body: ChatBody, service: Service, manner: Manner) -> tuple[GenerationSpec, CallFormat | None]:
    """Returns the spec of a body, and the format of its answer's tool calls. A RouterError names the field that is
    refused, in this manner."""
    refuse_unsupported(body.model_extra, REFUSED_IN_CHATS)
    if body.n == 0:
        raise ValidationError("`n` must be > 0. Given: 0", "integer_below_min_value")
    if body.top_logprobs and not body.logprobs:
        raise ValidationError("`top_logprobs` needs `logprobs` to be true")
    common = parameters(body, service.limits, max_tokens(body), top_n_tokens=body.top_logprobs)
    conversation = await converse(body, service)
    marker_id = service.tokenizer.special_id(conversation.call_format.marker) if conversation.call_format else None
    grammar, call_format = await _shape(conversation, common.grammar, marker_id, service)
    return GenerationSpec(
        inputs=conversation.prompt,
        parameters=common if grammar is common.grammar else common.model_copy(update={"grammar": grammar}),
        n=1 if body.n is None or body.use_beam_search else body.n,
        is_greedy=body.is_greedy,
        keep_stop=False,
        add_special_tokens=bool(body.add_special_tokens),
        has_openai_penalties=True,
        raw_logprobs=True,
        shown_ids=frozenset() if marker_id is None else frozenset({marker_id}),
        adapter=service.adapters.named(body.model),
        names=manner.names(body, inputs="messages", top_n_tokens="top_logprobs")), call_format


async def _shape(
    conversation: Conversation, form: GrammarSpec | None, marker_id: int | None, service: Service
) -> tuple[GrammarSpec | None, CallFormat | None]:
    """Returns the grammar of the answer, and how it calls tools, if it may.

    An answer that must call tools has no other form. One that may is a call or has the form that is asked for; it has
    the form alone where a call can't be told from it, grammars are off, or that of both would be too large. Without a
    form, it has no grammar in the last two cases.
    """
    call_format, offer = conversation.call_format, conversation.offer
    if call_format is None or offer is None:
        return form, None
    if not offer.must_call:
        if form is not None and not call_format.marker:
            return form, None
        if service.grammars is None:
            return form, None if form else call_format
    try:
        grammar = await asyncio.to_thread(tools_grammar, call_format, offer, marker_id, form)
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}", param="tools") from error
    if offer.must_call or len(grammar.source) <= MAX_SOURCE:
        return grammar, call_format
    return form, None if form else call_format


async def converse(body: ChatBody, service: Service) -> Conversation:
    """Writes the prompt by the model's template. If that knows nothing of tools, a message describes them, as in
    TGI."""
    template = service.template
    if template is None:
        raise TemplateError("template not found")
    offer = read_offer(body.tools, body.tool_choice, body.parallel_tool_calls is not False)
    messages = read_messages(body.messages, template, body.chat_template)
    takes_tools = template.reads("tools", body.chat_template)
    if not takes_tools:
        messages = [tools_prompt.calls_as_text(message) for message in messages]
    if offer is not None and not takes_tools:
        described = tools_prompt.describe(offer.tools)
        messages = tools_prompt.add_to_messages(messages, f"{described}\n{body.tool_prompt or tools_prompt.PROMPT}")
    elif offer is not None and body.tool_prompt:
        messages = tools_prompt.add_to_messages(messages, body.tool_prompt)
    tools = [tool.told for tool in offer.tools] if offer is not None and takes_tools else None
    began_at = time.monotonic()
    try:
        prompt = await _render(body, template, messages, tools)
    finally:
        service.metrics.rendered(time.monotonic() - began_at)
    if offer is None:
        return Conversation(prompt, None, None)
    call_format = native_format(template.source(body.chat_template)) if takes_tools else None
    return Conversation(prompt, offer, call_format or PLAIN)


async def _render(
    body: ChatBody, template: ChatTemplate, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> str:
    """Renders the prompt; as in TGI, a last message of the assistant is continued unless the body says otherwise."""
    last = messages[-1]
    is_begun = last["role"] == "assistant" and bool(last.get("content")) and "tool_calls" not in last
    is_continued = body.continue_final_message
    if is_continued is None:
        is_continued = is_begun and not body.add_generation_prompt
    if is_continued and body.add_generation_prompt:
        raise ValidationError("`add_generation_prompt` and `continue_final_message` cannot both be true")
    return await template.render_async(
        messages, tools=tools, add_generation_prompt=not is_continued and body.add_generation_prompt is not False,
        continue_final_message=is_continued, chat_template=body.chat_template, **_variables(body, template))


def _variables(body: ChatBody, template: ChatTemplate) -> dict[str, Any]:
    """Returns the template's own variables. A field that is one is refused if the template does not read it, and so is
    a setting of the answer that was put among them."""
    variables = body.chat_template_kwargs or {}
    if len(variables) > MAX_FIELDS:
        raise ValidationError(f"`chat_template_kwargs` must have at most {MAX_FIELDS} variables. Given: "
                              f"{len(variables)}")
    if taken := _OURS & variables.keys():
        raise ValidationError(f"`chat_template_kwargs` cannot have `{min(taken)}`, which is a field of its own")
    unread = {name: value for name, value in variables.items() if not template.reads(name, body.chat_template)}
    refuse_unsupported(unread, REFUSED_IN_TEMPLATES)
    fields = {name: value for name in ("documents", "reasoning_effort") if (value := getattr(body, name))}
    for name in fields:
        if not template.reads(name, body.chat_template):
            raise ValidationError(f"`{name}` is not supported by this model's chat template", "unsupported_parameter")
    return {**variables, **fields}
