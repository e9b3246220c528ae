"""The schemas of tools as they stand in grammars: prepared, and checked once."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import orjson

from penstock.router.chat.tools.offer import Tool
from penstock.router.chat.tools.pattern import fits
from penstock.router.chat.tools.value_types import properties_of, required_of
from penstock.router.grammar.compiler import MAX_SOURCE, check_schema
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.schema import prepare

MAX_CHECKED = 256
"""How many schemas' checks are remembered, of schemas of at most MAX_SOURCE characters."""
_ITEM, _KEY = ", ?", ": ?"
"""Regular expressions for what separates items, and keys from values: models have seen both ways."""


def arguments_schema(tool: Tool) -> str:
    """Returns the schema of a tool's arguments; any object's if that can't be compiled and need not be.

    An empty list of properties means that there are none.
    """
    closed = {"additionalProperties": False} if tool.parameters.get("properties") == {} else {}
    return _compiled(tool, {**closed, **tool.parameters, "type": "object"}, _ANY_OBJECT)


def value_schema(tool: Tool, schema: Mapping[str, Any]) -> str:
    """Returns the schema of one of a tool's parameters; any value's if that can't be compiled and need not be."""
    shared: dict[str, Any] = {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
    return _compiled(tool, {**shared, **schema}, _ANY)


def refused(tool: Tool, reason: object) -> GrammarError:
    """Returns the error of a tool that can't be offered as it is."""
    return GrammarError(f"the parameters of the function {tool.name!r}: {reason}")


def writable(tool: Tool, hole: str) -> dict[str, Any]:
    """Returns the properties whose names a hole of the model's calls can have. Raises GrammarError where others are
    required, or the tool is strict."""
    properties = properties_of(tool.parameters)
    others = [key for key in properties if not fits(hole, key)]
    for key in others if tool.is_strict else set(others).intersection(required_of(tool.parameters)):
        raise refused(tool, f"this model's calls can't have a parameter of the name {key!r:.80}")
    return {key: schema for key, schema in properties.items() if key not in others}


def check_keywords(tool: Tool, known: Collection[str]) -> None:
    """Refuses a strict tool whose parameters have other keywords than those that the model's form of calls binds."""
    unknown = [key for key in tool.parameters if key not in known]
    if unknown and tool.is_strict:
        raise refused(tool, f"`{min(unknown)}` is not supported for the parameters of this model's calls")


def without_operators(json: str) -> str:
    """Escapes the characters of a JSON string that are operators in Lark's notation."""
    return json.replace("&", "\\u0026").replace("~", "\\u007e")


def _compiled(tool: Tool, schema: Mapping[str, Any], otherwise: str) -> str:
    try:
        return _checked(orjson.dumps(schema).decode())
    except GrammarError as error:
        if tool.is_strict:
            raise refused(tool, error) from error
        return otherwise


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
    return without_operators(prepared)


_check_once = lru_cache(maxsize=MAX_CHECKED)(_check)
"""Clients offer the same tools with every request of a conversation."""


def _prepare(source: str) -> str:
    return prepare(source, _ITEM, _KEY)


_ANY_OBJECT = _prepare('{"type":"object"}')
_ANY = _prepare("{}")
