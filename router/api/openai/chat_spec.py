"""Makes a generation's spec of a chat's body: its prompt, and the format in which tools may be called."""

import asyncio
from typing import Any

from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.manner import Manner
from penstock.router.api.openai.parameters import max_tokens, parameters
from penstock.router.api.openai.tools import read_offer
from penstock.router.chat.conversation import Conversation
from penstock.router.chat.tools_format import CallFormat
from penstock.router.chat.tools_grammar import tools_grammar
from penstock.router.errors import TemplateError, ValidationError
from penstock.router.generation.other_fields import REFUSED_IN_CHATS, refuse_unsupported
from penstock.router.generation.prompts import check_variables, write_prompt
from penstock.router.generation.service import Service
from penstock.router.generation.spec import GenerationSpec
from penstock.router.grammar.compiler import MAX_SOURCE
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec


async def parse(body: ChatBody, service: Service, manner: Manner) -> tuple[GenerationSpec, CallFormat | None]:
    """Returns the spec of a body, and the format of its answer's tool calls. A RouterError names the field that is
    refused, in this manner."""
    refuse_unsupported(body.model_extra, REFUSED_IN_CHATS)
    if body.n == 0:
        raise ValidationError("`n` must be > 0. Given: 0", "integer_below_min_value")
    if body.top_logprobs and not body.logprobs:
        raise ValidationError("`top_logprobs` needs `logprobs` to be true")
    common = parameters(body, service.limits, max_tokens(body), top_n_tokens=body.top_logprobs)
    prompt, conversation = await converse(body, service)
    marker_id = service.tokenizer.special_id(conversation.call_format.marker) if conversation.call_format else None
    grammar, call_format = await _shape(conversation, common.grammar, marker_id, service)
    return GenerationSpec(
        inputs=prompt,
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


async def converse(body: ChatBody, service: Service) -> tuple[str, Conversation]:
    """Returns the prompt that the model's template makes of a chat, and the conversation as the template has it."""
    if service.template is None:
        raise TemplateError("template not found")
    offer = read_offer(body.tools, body.tool_choice, body.parallel_tool_calls is not False)
    conversation = Conversation.read(service.template, body.messages, offer, body.chat_template, body.tool_prompt)
    prompt = await write_prompt(service, conversation, _variables(body, conversation), body.add_generation_prompt,
                                body.continue_final_message)
    return prompt, conversation


def _variables(body: ChatBody, conversation: Conversation) -> dict[str, Any]:
    """Returns the template's own variables. A field that is one is refused if the template does not read it."""
    variables = body.chat_template_kwargs or {}
    check_variables(variables, conversation)
    fields = {name: value for name in ("documents", "reasoning_effort") if (value := getattr(body, name))}
    for name in fields:
        if not conversation.reads(name):
            raise ValidationError(f"`{name}` is not supported by this model's chat template", "unsupported_parameter")
    return {**variables, **fields}
