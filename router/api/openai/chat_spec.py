"""Makes a turn of a chat's body."""

from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.functions import as_tool_choice
from penstock.router.api.openai.manner import Manner
from penstock.router.api.openai.parameters import max_tokens, parameters
from penstock.router.api.openai.prompt_logprobs import top_logprobs
from penstock.router.api.openai.tools import read_offer
from penstock.router.chat.tools.offer import Offer
from penstock.router.errors import ToolError, ValidationError
from penstock.router.generation.other_fields import REFUSED_IN_CHATS, refuse_unsupported
from penstock.router.limits import Limits
from penstock.router.turns.dialogue import Dialogue
from penstock.router.turns.turn import Turn


def turn_of(body: ChatBody, limits: Limits, manner: Manner) -> Turn:
    """Returns the turn that a body asks for. A ValidationError names the field that is refused, in this manner."""
    refuse_unsupported(body.model_extra, REFUSED_IN_CHATS)
    if body.n == 0:
        raise ValidationError("`n` must be > 0. Given: 0", "integer_below_min_value")
    if body.top_logprobs and not body.logprobs:
        raise ValidationError("`top_logprobs` needs `logprobs` to be true")
    top = top_logprobs(body, "top_logprobs", body.top_logprobs)
    return Turn(
        parameters=parameters(body, limits, max_tokens(body), top_n_tokens=top.number),
        dialogue=dialogue_of(body),
        names=manner.names(body, inputs="messages", top_n_tokens=top.field),
        model=body.model,
        n=1 if body.n is None or body.use_beam_search else body.n,
        is_greedy=body.is_greedy,
        add_special_tokens=bool(body.add_special_tokens),
        keeps_stop=body.keeps_stop,
        skips_special=body.skip_special_tokens is not False,
        tells_thoughts=not limits.tgi_openai_routes,
        wants_prompt_logprobs=body.prompt_logprobs is not None)


def offer_of(body: ChatBody) -> Offer | None:
    """Returns the tools that a body offers, in the new form or the old one. Raises ValidationError and ToolError."""
    if not body.functions and body.function_call in (None, "none", "auto"):  # which asks for nothing
        return read_offer(body.tools, body.tool_choice, body.parallel_tool_calls is not False)
    if body.tools:
        name, new = ("functions", "tools") if body.functions else ("function_call", "tool_choice")
        raise ValidationError(f"`{name}` is the old form of `{new}`, and does not go with `tools`", param=name)
    try:
        return read_offer([function.as_tool() for function in body.functions or ()],
                          as_tool_choice(body.function_call), is_parallel=False)
    except ToolError as error:
        error.param = "function_call"
        raise


def dialogue_of(body: ChatBody) -> Dialogue:
    """Returns the conversation of a body. Raises ValidationError and ToolError."""
    return Dialogue(
        body.messages,
        offer_of(body),
        template=body.chat_template,
        tool_prompt=body.tool_prompt,
        variables=body.chat_template_kwargs or {},
        fields={"documents": body.documents},
        thinking=body.thinking,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message)
