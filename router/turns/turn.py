"""A turn of a conversation that is to be answered: one neutral request, which each API makes of its own body."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.router.chat.answer_form import PLAIN_FORM, AnswerForm
from penstock.router.chat.conversation import Conversation
from penstock.router.chat.harmony_format import THINKING, harmony_grammar
from penstock.router.chat.tools.grammar import tools_grammar
from penstock.router.errors import ValidationError
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.service import Service
from penstock.router.generation.shown_tokens import shown_ids
from penstock.router.generation.spec import FieldNames, GenerationSpec
from penstock.router.grammar.compiler import MAX_SOURCE
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.turns import thinking
from penstock.router.turns.dialogue import Dialogue


@dataclass(frozen=True, slots=True)
class Turn:
    """A dialogue to be answered. `parameters.grammar` is the form that is asked of the answer's text; `model` is the
    name by which the client asked, which may be an adapter's; `names` are for errors. Where an answer `keeps_stop` its
    text has the stop string that ends it, and special tokens unless it `skips_special`. Unless it `tells_thoughts` they
    are text as the rest. The others are as in `GenerationSpec`."""

    dialogue: Dialogue
    parameters: Parameters
    names: FieldNames
    model: str | None = None
    n: int = 1
    is_greedy: bool = False
    add_special_tokens: bool = False
    keeps_stop: bool = False
    skips_special: bool = True
    tells_thoughts: bool = True
    wants_prompt_logprobs: bool = False
    fills_context: bool = False

    async def read(self, service: Service) -> tuple[GenerationSpec, AnswerForm]:
        """Returns what is generated, and the form of its answers. A RouterError names the field that is refused."""
        prompt, conversation = await self.dialogue.written(service)
        calls = conversation.call_format
        mark_ids = {} if calls is None else service.tokenizer.marks(calls.texts)
        common, wish = self.parameters, self.dialogue.thinking
        taught = thinking.taught(conversation, service) if self.tells_thoughts else None
        thinking.check_budget(wish, taught, service)
        thoughts, is_open = thinking.format_of(taught, conversation, prompt)
        if thoughts is not None and thoughts.has_channels:
            grammar, form = await _shape_in_channels(conversation, common.grammar, wish.budget, service)
        else:
            grammar, form = await _shape(conversation, common.grammar, mark_ids, service)
        form = replace(form, thinking=thoughts, is_thinking=is_open)
        grammar = await thinking.bound(grammar, thoughts, is_open, wish.budget, service)
        shown = shown_ids(
            service, common, skip_special_tokens=self.skips_special, keep_stop=self.keeps_stop)
        return GenerationSpec(
            inputs=prompt,
            parameters=common if grammar is common.grammar else common.model_copy(update={"grammar": grammar}),
            n=self.n,
            is_greedy=self.is_greedy,
            keep_stop=self.keeps_stop,
            tells_special=False,
            add_special_tokens=self.add_special_tokens,
            has_openai_penalties=True,
            raw_logprobs=True,
            wants_prompt_logprobs=self.wants_prompt_logprobs,
            shown_ids=shown.union(mark_ids.values(), thinking.shown_ids(thoughts, service)),
            adapter=service.adapters.named(self.model),
            names=self.names,
            fills_context=self.fills_context), form


async def _shape(
    conversation: Conversation, asked: GrammarSpec | None, mark_ids: Mapping[str, int], service: Service
) -> tuple[GrammarSpec | None, AnswerForm]:
    """Returns the grammar of the answer, and the form in which it is read.

    An answer that must call tools has no other form. One that may is a call or follows the grammar that is `asked` of
    it; it follows that alone where a call can't be told from it, grammars are off, or that of both would be too large.
    If none is asked, it has no grammar in the last two cases.
    """
    calls, offer = conversation.call_format, conversation.offer
    if calls is None or offer is None:
        return asked, PLAIN_FORM
    form = AnswerForm(calls, offer)
    if not offer.must_call:
        if asked is not None and not calls.marker:
            return asked, PLAIN_FORM
        if service.grammars is None:
            return asked, PLAIN_FORM if asked else form
    try:
        grammar = await asyncio.to_thread(tools_grammar, calls, offer, mark_ids, asked)
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}", param="tools") from error
    if offer.must_call or len(grammar.source) <= MAX_SOURCE:
        return grammar, form
    return asked, PLAIN_FORM if asked else form


async def _shape_in_channels(
    conversation: Conversation, asked: GrammarSpec | None, budget: int | None, service: Service
) -> tuple[GrammarSpec | None, AnswerForm]:
    """Returns the grammar of an answer that is messages in channels, and the form in which it is read. It has one if
    its form is bound, or its thinking, which could begin once more behind its end otherwise."""
    offer = conversation.offer
    form = AnswerForm(conversation.call_format, offer)
    if asked is None and (budget is None or service.grammars is None) and (
            offer is None or (service.grammars is None and not offer.must_call)):
        return None, form
    mark_ids = service.tokenizer.marks("".join(THINKING.marks))
    try:
        grammar = await asyncio.to_thread(harmony_grammar, offer, mark_ids, asked)
        if offer is not None and not offer.must_call and len(grammar.source) > MAX_SOURCE:
            return None if asked is None else harmony_grammar(None, mark_ids, asked), form
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}", param="tools") from error
    return grammar, form
