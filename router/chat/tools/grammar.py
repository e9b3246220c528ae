"""The possible answers where tools are offered, as a grammar in Lark's notation with JSON schemas in it.

Arguments follow the function's schema, and no other function is called. Where the model may choose, the grammar is
text that begins no call, or calls: decided where the format's marker is complete, or, in a format without one, where
an answer begins as a call does. So an answer in JSON that is no call remains possible.
"""

import re
from collections.abc import Iterator, Mapping

import orjson

from penstock.router.chat.tools.call_format import NAME, WORD, CallFormat, Keywords
from penstock.router.chat.tools.grammar_arguments import arguments_expression
from penstock.router.chat.tools.lark import ANY_TEXT, Lark, regex
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.grammar.compiler import expression
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec

_BARE = re.compile(r"[\w.\/$@-]+")
"""Names that a format can have without quotes."""


def tools_grammar(
    call_format: CallFormat, offer: Offer, mark_ids: Mapping[str, int] | None = None,
    form: GrammarSpec | None = None,
) -> GrammarSpec:
    """Returns the grammar of answers to an offer. `mark_ids` are the ids of tokens that grammars know by ids alone and
    whose texts are parts of the format. With a `form`, for formats with a marker, an answer has this form, or is calls
    with no text before them.

    A GrammarError names a strict tool whose schema can't be compiled, or says what is wrong with the form or a name.
    """
    lark = Lark(mark_ids or {})
    more = f"({lark.text(call_format.separator)} call)*" if offer.is_parallel else ""
    rest = f"{more} {lark.text(call_format.end)}"
    calls = dict(_calls(call_format, lark, offer))
    rules = [f"call: {lark.text(_name_parts(call_format)[0])} named",
             "named: " + " | ".join(f"{lark.text(name)} {arguments}" for name, arguments in calls.items())]
    if call_format.marker:
        start, further = _marked(call_format, lark, rest, offer.must_call, form)
    else:
        start, further = _bare(call_format, calls, rest, offer.must_call)
    return GrammarSpec("lark", "\n".join([f"start: {start}", *rules, *further, *lark.rules]))


def _marked(
    call_format: CallFormat, lark: Lark, rest: str, must_call: bool, form: GrammarSpec | None
) -> tuple[str, list[str]]:
    """Returns the rule of answers of a format with a marker, and further ones that it needs."""
    marker, opened = call_format.marker, call_format.opened
    after_marker = f"{lark.text(call_format.begin.removeprefix(marker))} call {rest}"
    first = f"{lark.text(marker.removeprefix(opened))} {after_marker}"
    prose = lark.text(call_format.prose.removeprefix(opened))
    if must_call:
        return first, []
    if form is not None:
        return f"{prose} form | {first}", [f"form: {expression(form)}"]
    start = f"{prose} TEXT | {prose} {lark.until('TEXT', marker)} {after_marker}" + (f" | {first}" if opened else "")
    return start, [f"TEXT: {ANY_TEXT}{lark.without(marker)}"]


def _bare(
    call_format: CallFormat, calls: Mapping[str, str], rest: str, must_call: bool
) -> tuple[str, list[str]]:
    """Returns the rule of answers of a format without a marker, and further ones that it needs. An answer is a call
    from where it can be told from text: behind the text before the name, or behind a name that a bracket follows."""
    if must_call:
        return f"{Lark({}).text(call_format.begin)} call {rest}", []
    words = re.findall(r'"\w+"|\S', call_format.begin + _name_parts(call_format)[0])
    opening = r"\s*".join(["", *map(regex, words), ""])
    if not isinstance(call_format.arguments, Keywords):
        return f"TEXT | OPENING named {rest}", [
            f"TEXT: {ANY_TEXT} & ~/{opening}(.|\\n)*/", f"OPENING: /{opening}/"]
    opened = " | ".join(f"/{opening}{regex(name)}/ {arguments}" for name, arguments in calls.items())
    return f"TEXT | opened {rest}", [rf"TEXT: {ANY_TEXT} & ~/{opening}{_BARE.pattern}\((.|\n)*/", f"opened: {opened}"]


def _name_parts(call_format: CallFormat) -> tuple[str, str]:
    """Returns the texts of the header before and behind the name."""
    before, _, behind = call_format.header.partition(NAME if NAME in call_format.header else WORD)
    return before, behind


def _calls(call_format: CallFormat, lark: Lark, offer: Offer) -> Iterator[tuple[str, str]]:
    """Yields the text of each function's call from the name to its arguments, and the expression of what follows."""
    behind, close = _name_parts(call_format)[1], lark.text(call_format.close)
    for tool in offer.tools:
        yield _written(tool, call_format) + behind, f"{arguments_expression(tool, call_format, lark)} {close}"


def _written(tool: Tool, call_format: CallFormat) -> str:
    """Returns the name of a tool as calls have it."""
    if NAME in call_format.header:
        return orjson.dumps(tool.name).decode()
    if not _BARE.fullmatch(tool.name):
        raise GrammarError(f"the name of the function {tool.name!r}: this model's calls have letters, digits and "
                           "the characters ./$@_- in names")
    return tool.name
