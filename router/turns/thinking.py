"""How an answer thinks before it answers: the client's wish, the form that the template teaches, the limit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.router.chat.conversation import Conversation
from penstock.router.chat.thinking_format import Place, ThinkingFormat, named_format, place, taught_format
from penstock.router.errors import ValidationError
from penstock.router.generation.service import Service
from penstock.router.grammar.spec import GrammarSpec, ThinkingRule, ThinkingSpec

_SWITCHES = ("enable_thinking", "thinking")
"""Variables by which templates turn thinking on and off."""
_EFFORT, _BUDGET = "reasoning_effort", "thinking_budget"
_NO_EFFORT = ("none", "minimal")
EFFORTS = (*_NO_EFFORT, "low", "medium", "high", "xhigh", "max")
"""The efforts that are known where a template does not read them itself."""


@dataclass(frozen=True, slots=True)
class ThinkingWish:
    """How a client wishes the model to think; None where it says nothing. `budget` is the most tokens of thinking.

    If the wish `insists`, a budget that can't be held is refused, and so is an effort that nobody knows. A model that
    can't choose its effort does not follow one: agents send it to all models.
    """

    is_on: bool | None = None
    effort: str | None = None
    budget: int | None = None
    insists: bool = True
    budget_name: str = "thinking_token_budget"
    """The name of the budget's field, for errors."""

    def variables(self, conversation: Conversation, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the template's variables that the wish sets; those that are `given` stay. Raises ValidationError."""
        found: dict[str, Any] = {}
        is_on = self.is_on
        if self.effort is not None:
            if conversation.reads(_EFFORT):
                found[_EFFORT] = self.effort
            else:
                self._check_effort()
            if is_on is None and (self.effort in _NO_EFFORT or _EFFORT not in found):
                is_on = self.effort not in _NO_EFFORT
        if is_on is not None:
            found |= {name: is_on for name in _SWITCHES if conversation.reads(name)}
        if self.budget is not None and conversation.reads(_BUDGET):
            found[_BUDGET] = self.budget
        return {name: value for name, value in found.items() if name not in given}

    def _check_effort(self) -> None:
        if self.insists and self.effort not in EFFORTS:
            raise ValidationError(f"`{_EFFORT}` must be one of {', '.join(EFFORTS)}. Given: \"{self.effort:.40}\"")


NO_WISH = ThinkingWish()


def taught(conversation: Conversation, service: Service) -> ThinkingFormat | None:
    """Returns how the model thinks, by its template or by the server's setting; None if it does not."""
    name = service.limits.reasoning_parser
    if name == "none":
        return None
    return taught_format(conversation.template.source(conversation.name)) if name == "auto" else named_format(name)


def format_of(
    form: ThinkingFormat | None, conversation: Conversation, prompt: str
) -> tuple[ThinkingFormat | None, bool]:
    """Returns how the answer to a prompt thinks, of a model that thinks in this form, and whether the prompt has opened
    the thinking; None if the prompt has closed it, too."""
    where = Place.BEHIND if form is None else place(form, prompt, conversation.messages)
    return (None, False) if where is Place.BEHIND else (form, where is Place.WITHIN)


def shown_ids(form: ThinkingFormat | None, service: Service) -> frozenset[int]:
    """Returns the special tokens whose texts tell thoughts from the rest."""
    found = [service.tokenizer.special_id(mark) for mark in form.marks] if form is not None else ()
    return frozenset(token_id for token_id in found if token_id is not None)


async def bound(
    grammar: GrammarSpec | None, form: ThinkingFormat | None, is_open: bool, budget: int | None, service: Service
) -> GrammarSpec | None:
    """Returns the grammar of an answer of which `grammar` binds the part behind the thinking, and whose thinking ends
    at its budget. A server without grammars leaves the thinking to the model."""
    if form is None or (grammar is None and (budget is None or service.grammars is None)):
        return grammar
    begin_ids, end_ids = [await service.tokenizer.encode(mark, add_special_tokens=False)
                          for mark in (form.begin, form.end)]
    rule = ThinkingRule(form.begin, form.end, begin_ids, end_ids, is_open, budget)
    return ThinkingSpec("any", "", rule) if grammar is None else ThinkingSpec(grammar.kind, grammar.source, rule)


def check_budget(wish: ThinkingWish, form: ThinkingFormat | None, service: Service) -> None:
    """Raises ValidationError for a budget that can't be held, if the wish insists."""
    if wish.budget is None or not wish.insists:
        return
    if form is None:
        raise ValidationError(f"`{wish.budget_name}` is not supported: this model's chat template tells of no "
                              "thinking", "unsupported_parameter")
    if service.grammars is None:
        raise ValidationError(f"`{wish.budget_name}` is not supported: this server has no grammars",
                              "unsupported_parameter")
