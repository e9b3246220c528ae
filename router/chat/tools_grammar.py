"""What an answer may be where tools are offered, as a grammar in Lark's notation with JSON schemas in it.

Arguments follow the function's schema, and no other function is called. Where the model may choose, the grammar is
text that begins no call, or calls: decided where the format's marker is complete, or, in a format without one, where
an answer begins as a call does. So an answer in JSON that is no call remains possible.
"""

import json
from collections.abc import Sequence
from typing import Any

from router.chat.tools import Offer, Tool
from router.chat.tools_format import NAME, CallFormat
from router.grammar.spec import GrammarSpec

_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""White space as templates and Python's `json` write it."""
_TEXT = r"TEXT: /(.|\n)*/"
_NO_CALL = r'TEXT: /(.|\n)*/ & ~/\s*\{\s*"name"\s*:(.|\n)*/'
_OPENING = r'OPENING: /\s*\{\s*"name"\s*:\s*/'


def tools_grammar(form: CallFormat, offer: Offer, marker_id: int | None = None) -> GrammarSpec:
    """`marker_id`: the special token that is the format's marker, if it is one."""
    more = f"({_text(form.separator)} call)*" if offer.is_parallel else ""
    rest = f"{more} {_text(form.end)}"
    if not form.marker:
        start = f"call {rest}" if offer.must_call else f"TEXT | OPENING named {rest}"
        own = [f"call: {_text(_header_start(form))} named", _NO_CALL, _OPENING]
    else:
        after_marker = f"{_text(form.begin.removeprefix(form.marker))} call {rest}"
        marker = _text(form.marker) if marker_id is None else f"<[{marker_id}]>"
        start = f"{marker} {after_marker}" if offer.must_call else f"TEXT | marked {after_marker}"
        own = [f"call: {_text(_header_start(form))} named", _TEXT,
               f"marked[lazy]: TEXT {marker}" if marker_id is None else f"marked: TEXT {marker}"]
    return GrammarSpec("lark", "\n".join([f"start: {start}", *own, *_named(form, offer.tools)]))


def _header_start(form: CallFormat) -> str:
    return form.header.partition(NAME)[0]


def _named(form: CallFormat, tools: Sequence[Tool]) -> list[str]:
    """Rules for the rest of a call, from the function's name on."""
    after_name = form.header.partition(NAME)[2].removesuffix("{")
    functions = [f"{_text(json.dumps(tool.name, ensure_ascii=False) + after_name)} "
                 f"%json {json.dumps(_schema(tool))} {_text(form.close)}" for tool in tools]
    rules = [f"function_{number}: {function}" for number, function in enumerate(functions)]
    return ["named: " + " | ".join(f"function_{number}" for number in range(len(tools))), *rules]


def _schema(tool: Tool) -> dict[str, Any]:
    """Arguments that a closed list of properties does not name are none."""
    closed = {"additionalProperties": False} if "properties" in tool.parameters else {}
    return {**closed, **tool.parameters, "type": "object", "x-guidance": {**_STYLE, "lenient": not tool.is_strict}}


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
