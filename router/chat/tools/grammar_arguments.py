"""The rules of a grammar for the arguments of one tool, in the form in which a family writes them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from penstock.router.chat.tools.call_format import KEY, KIND, CallFormat, Keywords, Tagged
from penstock.router.chat.tools.grammar_python import python_expression
from penstock.router.chat.tools.lark import ANY_TEXT, Lark, quoted
from penstock.router.chat.tools.offer import Tool
from penstock.router.chat.tools.schemas import (
    arguments_schema,
    check_keywords,
    refused,
    value_schema,
    writable,
)
from penstock.router.chat.tools.value_types import (
    STRING,
    Types,
    choices_of,
    followed,
    properties_of,
    required_of,
    type_of,
    types_of,
)
from penstock.router.grammar.compiler import check_expression, expression
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.schema import TOLD
from penstock.router.grammar.spec import GrammarSpec

_Schema = Mapping[str, Any]
_OPEN_KEY = "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/"
"""The keys of a tool whose schema names none."""
_OF_STRINGS = {"type", "pattern", "minLength", "maxLength", "contentEncoding", "contentMediaType"}
_OBJECT = TOLD | {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema", "$id"}
"""Keywords that bind the list of parameters, or bind nothing."""


def arguments_expression(tool: Tool, call_format: CallFormat, lark: Lark) -> str:
    """Returns the expression of a tool's arguments.

    The text of a custom tool is bound by its grammar where a call can have such a text. A GrammarError names a strict
    tool whose form can't be demanded; that of others binds nothing then.
    """
    if isinstance(call_format.arguments, Tagged):
        return _tagged(tool, call_format.arguments, lark, call_format.close_marks)
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


def _tagged(tool: Tool, form: Tagged, lark: Lark, closes: Sequence[str]) -> str:
    """Returns the expression of parameters in tags, in the order of the schema; what is not required may be left out.
    `closes` begin the text behind all parameters."""
    follows = (form.open.partition(KEY)[0], *closes)
    if not properties_of(tool.parameters) and "properties" not in tool.parameters:
        value = lark.until(ANY_TEXT, form.shut, form.pad, follows)
        return f"({_opening(form, '', lark, _OPEN_KEY)} {value} {lark.text(form.after)})*"
    check_keywords(tool, _OBJECT)
    required = required_of(tool.parameters)
    return " ".join(
        f"({_parameter(key, tool, schema, form, lark, follows)} {lark.text(form.after)})" +
        ("" if key in required else "?") for key, schema in writable(tool, KEY).items())


def _opening(form: Tagged, key: str, lark: Lark, key_rule: str = "", is_string: bool = True) -> str:
    """Returns the expression of the tag before a value."""
    before, _, behind = form.open.partition(KEY)
    if form.kinds is not None:
        behind = behind.replace(KIND, form.kinds[0 if is_string else 1])
    if key_rule:
        return f"{lark.text(before)} {key_rule} {lark.text(behind)}"
    return lark.text(before + key + behind)


def _parameter(key: str, tool: Tool, schema: Any, form: Tagged, lark: Lark, follows: Sequence[str]) -> str:
    """Returns the expression of a parameter up to the tag behind it. A value that may be a string, but need not, is any
    text, or one of those that are listed."""
    shut = lark.text(form.pad + form.shut)
    as_string, as_other = (_opening(form, key, lark, is_string=is_string) for is_string in (True, False))
    if tool.grammar is not None:
        return f"{as_string} {lark.rule(expression(tool.grammar))} {shut}"
    schema = followed(schema, tool.parameters)
    types, choices = types_of(schema, tool.parameters), choices_of(schema, tool.parameters)
    if "string" not in types:
        return f"{as_other} {lark.rule(f'%json {value_schema(tool, schema)} {shut}')}"
    if choices is not None:
        return _one_of(choices, types, as_string, as_other, shut)
    text = _string(tool, schema, types, form, lark)
    value = lark.until(ANY_TEXT if text is None else lark.terminal(text), form.shut, form.pad, follows)
    if form.kinds is not None and types != STRING:
        other = value_schema(tool, {"type": sorted(types - STRING)})
        return f"({as_string} {value} | {as_other} {lark.rule(f'%json {other} {shut}')})"
    return f"{as_string} {value}"


def _one_of(choices: list[Any], types: Types, as_string: str, as_other: str, shut: str) -> str:
    """Returns the expression of a parameter whose values are listed."""
    fit = [(value, type_of(value)) for value in choices if type_of(value) in types]
    texts = [f"{as_string} {quoted(value)}" for value, kind in fit if kind == "string"]
    others = [f"{as_other} {quoted(orjson.dumps(value).decode())}" for value, kind in fit if kind != "string"]
    return f"({' | '.join([*texts, *others])}) {shut}"


def _string(tool: Tool, schema: Any, types: Types, form: Tagged, lark: Lark) -> str | None:
    """Returns the regular expressions that a string must match; None if any may stand there, or if they can't be
    demanded and need not be."""
    bounds = schema if isinstance(schema, dict) and types == STRING else {}
    unknown = bounds.keys() - TOLD - _OF_STRINGS
    try:
        if unknown:
            raise GrammarError(f"`{min(unknown)}` is not supported for strings in this model's calls")
        parts = [*_bounds(bounds)]
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
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    for length in (least, most or 0):
        if not isinstance(length, int) or length < 0:
            raise GrammarError(f"a length of strings must be a number of 0 or more. Given: {length!r:.40}")
    if least or most != "":
        yield rf"/(.|\n){{{least},{most}}}/"
