"""Makes a turn of the body of a message."""

from penstock.router.api.anthropic.bodies import CountBody, MessagesBody
from penstock.router.api.anthropic.conversation import chat_messages, referred_tools
from penstock.router.api.anthropic.tools import read_offer
from penstock.router.errors import ValidationError
from penstock.router.generation.other_fields import REFUSED_IN_MESSAGES, refuse_unsupported
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.service import Service
from penstock.router.generation.spec import FieldNames
from penstock.router.grammar.forms import parse_response_format
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.turns.dialogue import Dialogue
from penstock.router.turns.thinking import ThinkingWish
from penstock.router.turns.turn import Turn


def turn_of(body: MessagesBody, service: Service) -> Turn:
    """Returns the turn that a body asks for. A RouterError names the field that is refused."""
    return Turn(
        dialogue=dialogue_of(body, service), parameters=_parameters(body), names=_names(body), model=body.model,
        is_greedy=body.is_greedy, fills_context=True)


def dialogue_of(body: CountBody, service: Service) -> Dialogue:
    """Returns the conversation of a body; one to be counted may have the other fields of a message, too. Raises
    ValidationError and ToolError."""
    extra = body.model_extra or {}
    refuse_unsupported({name: value for name, value in extra.items() if name not in MessagesBody.model_fields},
                       REFUSED_IN_MESSAGES)
    messages = chat_messages(body)
    offer = read_offer(body.tools, body.tool_choice, referred_tools(body.messages))
    return Dialogue(messages, offer, thinking=_thinking(body), keeps_system=True)


def _thinking(body: CountBody) -> ThinkingWish:
    """Returns the wish on thinking. Agents send one to every model, so that a template that knows nothing of it is no
    reason to refuse."""
    effort, asked = body.output_config.effort if body.output_config else None, body.thinking
    is_on = None if asked is None or asked.type == "adaptive" else asked.type == "enabled"
    return ThinkingWish(is_on, effort, asked.budget_tokens if asked is not None and is_on else None, insists=False,
                        budget_name="thinking.budget_tokens")


def _parameters(body: MessagesBody) -> Parameters:
    return Parameters(
        temperature=body.temperature or None,
        top_k=body.top_k or None,
        top_p=None if body.top_p in (0, 1) else body.top_p,
        do_sample=not body.is_greedy,
        max_new_tokens=body.max_tokens,
        stop=body.stop_sequences or [],
        deadline_ms=body.deadline_ms,
        grammar=_grammar(body))


def _grammar(body: MessagesBody) -> GrammarSpec | None:
    """Returns the grammar of the form that is asked for. Raises ValidationError, also if it is asked for twice."""
    new, old = body.output_config and body.output_config.format, body.output_format
    if new is not None and old is not None:
        raise ValidationError("`output_format` is `output_config.format` by its older name: one can be given, not both")
    form = new or old
    if form is None:
        return None
    return parse_response_format({"type": "json_schema", "json_schema": {"schema": form.schema_}})


def _names(body: MessagesBody) -> FieldNames:
    """Returns the names of the body's fields for errors."""
    grammar = "tools"
    if body.output_format is not None:
        grammar = "output_format"
    elif body.output_config is not None and body.output_config.format is not None:
        grammar = "output_config.format"
    return FieldNames("messages", "max_tokens", grammar=grammar, stop="stop_sequences")
