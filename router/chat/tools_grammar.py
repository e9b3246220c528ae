"""The possible answers where tools are offered, as a grammar in Lark's notation with JSON schemas in it.

Arguments follow the function's schema, and no other function is called. Where the model may choose, the grammar is
text that begins no call, or calls: decided where the format's marker is complete, or, in a format without one, where
an answer begins as a call does. So an answer in JSON that is no call remains possible.
"""

import re
from collections.abc import Iterator, Mapping

import orjson

from penstock.router.chat.tools import Offer, Tool
from penstock.router.chat.tools_format import NAME, WORD, CallFormat, Keywords
from penstock.router.chat.tools_grammar_parts import arguments_rules
from penstock.router.chat.tools_lark import ANY_TEXT, Lark, regex
from penstock.router.grammar.compiler import expression
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec

_BARE = re.compile(r"[\w./$@-]+")
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
    rules = [f"call: {lark.text(_name_parts(call_format)[0])} named", *_named(call_format, lark, offer)]
    if call_format.marker:
        start, further = _marked(call_format, lark, rest, offer.must_call, form)
    else:
        start, further = _bare(call_format, rest, offer.must_call)
    return GrammarSpec("lark", "\n".join([f"start: {start}", *rules, *further]))


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
    marked, rule = lark.until("marked", "TEXT", marker)
    start = f"{prose} TEXT | {prose} {marked} {after_marker}" + (f" | {first}" if opened else "")
    return start, [f"TEXT: {ANY_TEXT}", rule]


def _bare(call_format: CallFormat, rest: str, must_call: bool) -> tuple[str, list[str]]:
    """Returns the rule of answers of a format without a marker, and further ones that it needs."""
    before, _ = _name_parts(call_format)
    if must_call:
        return f"{_quoted_begin(call_format)} call {rest}", []
    words = re.findall(r'"\w+"|\S', call_format.begin + before)
    opening = r"\s*".join(["", *map(regex, words), ""])
    call = opening + (r"[\w.]+\(" if isinstance(call_format.arguments, Keywords) else "")
    return f"TEXT | OPENING named {rest}", [f"TEXT: {ANY_TEXT} & ~/{call}(.|\\n)*/", f"OPENING: /{opening}/"]


def _quoted_begin(call_format: CallFormat) -> str:
    return Lark({}).text(call_format.begin)


def _name_parts(call_format: CallFormat) -> tuple[str, str]:
    """Returns the texts of the header before and behind the name."""
    before, _, behind = call_format.header.partition(NAME if NAME in call_format.header else WORD)
    return before, behind


def _named(call_format: CallFormat, lark: Lark, offer: Offer) -> Iterator[str]:
    """Yields rules for the rest of a call, from the function's name on."""
    names = [f"function_{number}" for number in range(len(offer.tools))]
    yield f"named: {' | '.join(names)}"
    behind, close = _name_parts(call_format)[1], lark.text(call_format.close)
    for name, tool in zip(names, offer.tools, strict=True):
        arguments, rules = arguments_rules(name, tool, call_format, lark)
        yield f"{name}: {lark.text(_written(tool, call_format) + behind)} {arguments} {close}"
        yield from rules


def _written(tool: Tool, call_format: CallFormat) -> str:
    """Returns the name of a tool as calls have it."""
    if NAME in call_format.header:
        return orjson.dumps(tool.name).decode()
    if not _BARE.fullmatch(tool.name):
        raise GrammarError(f"the name of the function {tool.name!r}: this model's calls have letters, digits and "
                           "the characters ./$@_- in names")
    return tool.name
