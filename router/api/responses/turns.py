"""Makes a turn of a response's body and of what came before it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.api.openai.parameters import parameters
from penstock.router.api.responses.bodies import AskingBody, Item, ResponseBody, as_response_format
from penstock.router.api.responses.input_items import messages_of, own_items
from penstock.router.api.responses.tools import offer_of
from penstock.router.chat.answer_form import AnswerForm
from penstock.router.chat.messages import Message
from penstock.router.errors import ValidationError
from penstock.router.generation.other_fields import REFUSED_IN_RESPONSES, refuse_unsupported
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.service import Service
from penstock.router.generation.spec import FieldNames, GenerationSpec
from penstock.router.text.encoding import TooManyTokens
from penstock.router.turns.dialogue import Dialogue
from penstock.router.turns.thinking import ThinkingWish
from penstock.router.turns.turn import Turn

NAMES = FieldNames("input", "max_output_tokens", "top_logprobs", "truncation", "text.format", num_beams="n",
                   beam_search="use_beam_search")
_SHARED = ("model", "temperature", "top_p", "seed", "stop", "stop_token_ids", "logit_bias", "frequency_penalty",
           "presence_penalty", "repetition_penalty", "top_k", "min_p", "typical_p", "min_tokens", "ignore_eos",
           "service_tier", "priority", "deadline_ms")
"""The fields that chats have by the same names."""


@dataclass(frozen=True, slots=True)
class FittingTurn(Turn):
    """A turn of which the oldest messages are left out until its prompt has room."""

    async def read(self, service: Service) -> tuple[GenerationSpec, AnswerForm]:
        """Returns what is generated, and the form of its answer. Raises RouterError."""
        messages, limits = self.dialogue.messages, service.limits
        room = min(limits.max_input_tokens, limits.max_total_tokens - (self.parameters.max_new_tokens or 1))
        cuts = _cuts(messages)
        low, high = 0, len(cuts) - 1
        while low < high:
            middle = (low + high) // 2
            if await self._without(cuts[middle])._fits(service, room):
                high = middle
            else:
                low = middle + 1
        return await Turn.read(self._without(cuts[low]), service)

    async def _fits(self, service: Service, room: int) -> bool:
        prompt, _ = await self.dialogue.written(service)
        try:
            return len(await service.tokenizer.encode(prompt, self.add_special_tokens, most=room)) <= room
        except TooManyTokens:
            return False

    def _without(self, cut: tuple[int, int]) -> "FittingTurn":
        begin, end = cut
        messages = self.dialogue.messages
        return replace(self, dialogue=replace(self.dialogue, messages=[*messages[:begin], *messages[end:]]))


def _cuts(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Returns the ranges of messages that may be left out, from none to all but the system's first ones and the last
    message. No output of a call stays without the call."""
    begin = next((number for number, each in enumerate(messages) if each.role not in ("system", "developer")), 0)
    ends = [number for number in range(begin, len(messages)) if messages[number].role != "tool"]
    return [(begin, end) for end in ends] or [(0, 0)]


def dialogue_of(body: AskingBody, before: Sequence[Item], service: Service) -> Dialogue:
    """Returns the conversation of a body, behind the items that were `before` it. The effort of reasoning is told to
    templates that read it. Raises ValidationError and ToolError."""
    items = [*(("previous_response_id", item) for item in before),
             *((f"input[{number}]", item) for number, item in enumerate(own_items(body.input)))]
    effort = body.reasoning.effort if body.reasoning else None
    return Dialogue(
        messages_of(body.instructions, items), offer_of(body), variables=body.chat_template_kwargs or {},
        thinking=ThinkingWish(effort=effort, budget=body.thinking_token_budget, insists=False),
        add_generation_prompt=True, keeps_system=True)


def turn_of(body: ResponseBody, before: Sequence[Item], service: Service) -> Turn:
    """Returns the turn that a body asks for. Raises ValidationError and ToolError."""
    refuse_unsupported(body.model_extra, REFUSED_IN_RESPONSES)
    shared = as_chat(body)
    turn = FittingTurn if body.truncation == "auto" else Turn
    return turn(
        dialogue_of(body, before, service), _parameters(body, shared, service),
        NAMES if body.text and body.text.format else NAMES._replace(grammar="tools"), model=body.model,
        is_greedy=shared.is_greedy)


def as_chat(body: ResponseBody) -> OpenAIBody:
    """Returns the fields that chats have, too, as those of a chat."""
    fields = {name: getattr(body, name) for name in _SHARED}
    if body.service_tier == "ultrafast":  # which chats do not have
        fields["service_tier"] = "fast"
    form = body.text.format if body.text else None
    return OpenAIBody.model_validate(
        {**fields, "response_format": None if form is None else as_response_format(form)})


def _parameters(body: ResponseBody, shared: OpenAIBody, service: Service) -> Parameters:
    top = (body.top_logprobs or 0) if body.wants_logprobs else None
    try:
        return parameters(shared, service.limits, body.max_output_tokens, top_n_tokens=top)
    except ValidationError as error:
        if error.param == "response_format":
            error.param = NAMES.grammar
        raise
