"""The possible answers where tools are offered, as a grammar in Lark's notation with JSON schemas in it.

Arguments follow the function's schema, and no other function is called. Where the model may choose, the grammar is
text that begins no call, or calls: decided where the format's marker is complete, or, in a format without one, where
an answer begins as a call does. So an answer in JSON that is no call remains possible.
"""

from collections.abc import Sequence
from functools import lru_cache

import orjson

from penstock.router.chat.tools import Offer, Tool
from penstock.router.chat.tools_format import NAME, CallFormat
from penstock.router.grammar.compiler import MAX_SOURCE, check_schema, expression
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.schema import prepare
from penstock.router.grammar.spec import GrammarSpec

MAX_CHECKED = 256
"""How many schemas' checks are remembered, of schemas of at most MAX_SOURCE characters."""
_ITEM, _KEY = ", ?", ": ?"
"""Regular expressions for what separates items, and keys from values: models have seen both ways."""
_TEXT = r"TEXT: /(.|\n)*/"
_NO_CALL = r'TEXT: /(.|\n)*/ & ~/\s*\{\s*"name"\s*:(.|\n)*/'
_OPENING = r'OPENING: /\s*\{\s*"name"\s*:\s*/'


def tools_grammar(
    call_format: CallFormat, offer: Offer, marker_id: int | None = None, form: GrammarSpec | None = None
) -> GrammarSpec:
    """Returns the grammar of answers to an offer. `marker_id` is the special token that is the format's marker, if it
    is one. With a `form`, for formats with a marker, an answer has this form, or is calls with no text before them.

    A GrammarError names a strict tool whose schema can't be compiled, or says what is wrong with the form.
    """
    more = f"({_text(call_format.separator)} call)*" if offer.is_parallel else ""
    rest = f"{more} {_text(call_format.end)}"
    header_start, _, after_name = call_format.header.partition(NAME)
    rules = [f"call: {_text(header_start)} named", *_named(call_format, after_name.removesuffix("{"), offer.tools)]
    if not call_format.marker:
        start = f"call {rest}" if offer.must_call else f"TEXT | OPENING named {rest}"
        rules += [_NO_CALL, _OPENING]
    else:
        after_marker = f"{_text(call_format.begin.removeprefix(call_format.marker))} call {rest}"
        marker = _text(call_format.marker) if marker_id is None else f"<[{marker_id}]>"
        if offer.must_call:
            start = f"{marker} {after_marker}"
        elif form is not None:
            start = f"form | {marker} {after_marker}"
            rules.append(f"form: {expression(form)}")
        else:
            start = f"TEXT | marked {after_marker}"
            rules += [_TEXT, f"marked[lazy]: TEXT {marker}" if marker_id is None else f"marked: TEXT {marker}"]
    return GrammarSpec("lark", "\n".join([f"start: {start}", *rules]))


def _named(call_format: CallFormat, after_name: str, tools: Sequence[Tool]) -> list[str]:
    """Returns rules for the rest of a call, from the function's name on."""
    names, close = [f"function_{number}" for number in range(len(tools))], _text(call_format.close)
    return [f"named: {' | '.join(names)}", *(
        f"{name}: {_text(orjson.dumps(tool.name).decode() + after_name)} %json {_arguments(tool)} {close}"
        for name, tool in zip(names, tools, strict=True))]


def _arguments(tool: Tool) -> str:
    """Returns the schema as it is compiled; any object's if this one can't be compiled and need not be.

    An empty list of properties means that there are none.
    """
    closed = {"additionalProperties": False} if tool.parameters.get("properties") == {} else {}
    try:
        return _checked(orjson.dumps({**closed, **tool.parameters, "type": "object"}).decode())
    except GrammarError as error:
        if tool.is_strict:
            raise GrammarError(f"the parameters of the function {tool.name!r}: {error}") from error
        return _ANY_OBJECT


def _checked(source: str) -> str:
    """Returns the schema as it stands in a grammar; GrammarError if it can't be compiled."""
    outcome = _check_once(source) if len(source) <= MAX_SOURCE else _check(source)
    if isinstance(outcome, GrammarError):
        raise GrammarError(str(outcome))
    return outcome


def _check(source: str) -> str | GrammarError:
    try:
        prepared = _prepare(source)
        if len(prepared) <= MAX_SOURCE:  # longer ones are refused, or left out, with all of the grammar
            check_schema(prepared)
    except GrammarError as error:
        return GrammarError(str(error))  # one that was raised would keep all that its frames hold
    return _without_operators(prepared)


_check_once = lru_cache(maxsize=MAX_CHECKED)(_check)
"""Clients offer the same tools with every request of a conversation."""


def _prepare(source: str) -> str:
    return prepare(source, _ITEM, _KEY)


def _text(text: str) -> str:
    return _without_operators(orjson.dumps(text).decode()) if text else ""


def _without_operators(json: str) -> str:
    """Escapes the characters of a JSON string that are operators in Lark's notation."""
    return json.replace("&", "\\u0026").replace("~", "\\u007e")


_ANY_OBJECT = _prepare('{"type":"object"}')
