"""The rules of a grammar for the arguments of one tool, in the form in which a family writes them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.router.chat.tools import Tool
from penstock.router.chat.tools_format import KEY, KIND, CallFormat, Keywords, Tagged
from penstock.router.chat.tools_lark import ANY_TEXT, Lark, quoted
from penstock.router.chat.tools_python_grammar import python_expression
from penstock.router.chat.tools_schemas import arguments_schema, refused, value_schema
from penstock.router.chat.tools_types import STRING, types_of
from penstock.router.grammar.compiler import check_expression, expression
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec

_Schema = Mapping[str, Any]
_OPEN_KEY = "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/"
"""The keys of a tool whose schema names none."""
_TOLD = {"type", "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
         "$comment", "contentEncoding", "contentMediaType"}
"""Keywords that bind no string."""
_LENGTHS = {"minLength", "maxLength"}


def arguments_expression(tool: Tool, call_format: CallFormat, lark: Lark) -> str:
    """Returns the expression of a tool's arguments.

    The text of a custom tool is bound by its grammar where a call can have such a text. A GrammarError names a strict
    tool whose form can't be demanded; that of others binds nothing then.
    """
    if isinstance(call_format.arguments, Tagged):
        return _tagged(tool, call_format.arguments, lark)
    if tool.grammar is not None:
        if call_format.raw_close is not None:
            return lark.rule(expression(tool.grammar))
        if call_format.arguments is None and tool.grammar.kind == "regex":
            return f"%json {_input_schema(tool, tool.grammar.source)}"
        if tool.is_strict:
            raise GrammarError(f"the format of the custom tool {tool.name!r}: this model's calls can't hold a text by "
                               f"a grammar of the kind {tool.grammar.kind!r}")
    if isinstance(call_format.arguments, Keywords):
        return python_expression(tool, lark)
    return f"%json {arguments_schema(tool)}"


def _input_schema(tool: Tool, pattern: str) -> str:
    """Returns the schema of a custom tool's text as the only parameter."""
    text = {"type": "string", "pattern": f"^(?:{pattern})$"}
    return arguments_schema(replace(tool, is_strict=True, parameters={
        "type": "object", "required": ["input"], "properties": {"input": text}}))


def _tagged(tool: Tool, form: Tagged, lark: Lark) -> str:
    """Returns the expression of parameters in tags, in the order of the schema; what is not required may be left out.
    """
    properties = tool.parameters.get("properties")
    required = [key for key in tool.parameters.get("required") or () if isinstance(key, str)]
    if not isinstance(properties, dict):
        properties = {}
        if not required and "properties" not in tool.parameters:
            return f"({_opening(form, '', lark, _OPEN_KEY)} {_any_text(form, lark)} {lark.text(form.after)})*"
    properties = {**properties, **{key: {} for key in required if key not in properties}}
    parts = []
    for key, schema in properties.items():
        is_string = types_of(schema, tool.parameters) == STRING
        value = _value(tool, schema if isinstance(schema, dict) else {}, form, lark)
        opening = _opening(form, key, lark, is_string=is_string)
        parts.append(f"({opening} {value} {lark.text(form.after)})" + ("" if key in required else "?"))
    return " ".join(parts)


def _any_text(form: Tagged, lark: Lark) -> str:
    return lark.until(ANY_TEXT, form.shut, form.pad)


def _opening(form: Tagged, key: str, lark: Lark, key_rule: str = "", is_string: bool = True) -> str:
    """Returns the expression of the tag before a value."""
    before, _, behind = form.open.partition(KEY)
    if form.kinds is not None:
        behind = behind.replace(KIND, form.kinds[0 if is_string else 1])
    if key_rule:
        return f"{lark.text(before)} {key_rule} {lark.text(behind)}"
    return lark.text(before + key + behind)


def _value(tool: Tool, schema: _Schema, form: Tagged, lark: Lark) -> str:
    """Returns the expression of a value with the tag behind it. A value that may be a string, but need not, is any
    text."""
    shut = lark.text(form.pad + form.shut)
    if tool.grammar is not None:
        return f"{lark.rule(expression(tool.grammar))} {shut}"
    types = types_of(schema, tool.parameters)
    if "string" not in types:
        return lark.rule(f"%json {value_schema(tool, schema)} {shut}")
    if types == STRING:
        choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if choices is not None:
            return f"({' | '.join(map(quoted, filter(_is_text, choices)))}) {shut}"
        if text := _string(tool, schema, form, lark):
            return lark.until(lark.terminal(text), form.shut, form.pad)
    return _any_text(form, lark)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _string(tool: Tool, schema: _Schema, form: Tagged, lark: Lark) -> str | None:
    """Returns the regular expressions that a string must match; None if any may stand there, or if they can't be
    demanded and need not be."""
    unknown = schema.keys() - _TOLD - _LENGTHS - {"pattern"}
    try:
        if unknown:
            raise GrammarError(f"`{min(unknown)}` is not supported for strings in this model's calls")
        parts = [*_bounds(schema)]
        if not parts:
            return None
        text = " & ".join(parts) + lark.without(form.shut)
        check_expression("TEXT", f"TEXT: {text}")
    except GrammarError as error:
        if tool.is_strict:
            raise refused(tool, error) from error
        return None
    return text


def _bounds(schema: _Schema) -> Iterator[str]:
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        starts, ends = pattern.startswith("^"), re.search(r"(?<!\\)(\\\\)*\$$", pattern)
        inner = pattern.removeprefix("^")
        inner = inner[:-1] if ends else inner
        whole = ("" if starts else r"(.|\n)*") + f"(?:{inner})" + ("" if ends else r"(.|\n)*")
        yield expression(GrammarSpec("regex", whole))
    if not _LENGTHS.isdisjoint(schema):
        yield rf"/(.|\n){{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}/"
