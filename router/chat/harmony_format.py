"""The form in which gpt-oss answers: messages in channels, of which calls of tools are some, and their grammar."""

import re
from collections.abc import Mapping

from penstock.router.chat.thinking_format import named_format
from penstock.router.chat.tools.call_format import WORD, CallFormat
from penstock.router.chat.tools.grammar_arguments import arguments_expression
from penstock.router.chat.tools.lark import ANY_TEXT, Lark
from penstock.router.chat.tools.offer import Offer
from penstock.router.grammar.compiler import expression
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec

THINKING = named_format("openai_gptoss")
HARMONY = CallFormat(
    "openai", "gpt-oss", THINKING.taught_by, marker="<|channel|>commentary to=functions.",
    begin="<|channel|>commentary to=functions.", header=f"{WORD} <|constrain|>json<|message|>",
    other_headers=(f"{WORD}<|message|>",), close="", separator="")
_BARE = re.compile(r"[\w.$@-]+")
"""Names that a recipient can have."""


def harmony_grammar(offer: Offer | None, mark_ids: Mapping[str, int], form: GrammarSpec | None = None) -> GrammarSpec:
    """Returns the grammar of an answer behind its thinking: a final message, which may have a `form`, or calls of the
    tools that are offered. `mark_ids` are the ids of the special tokens.

    Without a form there may be a message before, by which the model tells about its work. A GrammarError names a strict
    tool whose schema can't be compiled, or says what is wrong with the form or a name.
    """
    lark = Lark(mark_ids)
    answers, rules = [], []
    if offer is None or not offer.must_call:
        answers.append(f"{lark.text('<|channel|>final<|message|>')} final")
        rules.append(f"final: {'TEXT' if form is None else expression(form)}")
    if offer is not None:
        answers.append("call")
        rules += _call_rules(offer, lark)
    start = f"start: {' | '.join(answers)}"
    if form is None:
        rules.append(f"TEXT: {ANY_TEXT}")
    if form is None and (offer is None or not offer.must_call):
        start += (f" | {lark.text('<|channel|>commentary<|message|>')} {lark.until('TEXT', '<|end|>')} "
                  f"{lark.text('<|start|>assistant')} ({' | '.join(answers)})")
    return GrammarSpec("lark", "\n".join([start, *rules, *lark.rules]))


def _call_rules(offer: Offer, lark: Lark) -> list[str]:
    """Returns the rules of one call, as the model makes it, and as its template writes those that it has made."""
    names, rules = [f"function_{number}" for number in range(len(offer.tools))], []
    for name, tool in zip(names, offer.tools, strict=True):
        if not _BARE.fullmatch(tool.name):
            raise GrammarError(f"the name of the function {tool.name!r}: this model's calls have letters, digits and "
                               "the characters .$@_- in names")
        arguments = arguments_expression(tool, HARMONY, lark)
        channel = lark.text(f"<|channel|>commentary to=functions.{tool.name}")
        recipient = lark.text(f" to=functions.{tool.name}<|channel|>commentary")
        rules.append(f"{name}: ({channel} | {recipient}) kind {lark.text('<|message|>')} {arguments}")
    return [f"call: {' | '.join(names)}", f'kind: " json" | (" " {lark.text("<|constrain|>")} "json")?', *rules]
