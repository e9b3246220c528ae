"""The rules of a grammar for the arguments of one tool, as Python writes those that have names."""

import json
from collections.abc import Callable
from typing import Any

from penstock.router.chat.tools.call_format import IDENTIFIER
from penstock.router.chat.tools.lark import Lark, quoted
from penstock.router.chat.tools.offer import Tool
from penstock.router.chat.tools.schemas import check_keywords, refused, value_schema, writable
from penstock.router.chat.tools.value_types import properties_of, required_of
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.references import resolved
from penstock.router.grammar.schema import TOLD

_ANNOTATIONS = TOLD | {"$schema", "$id", "$defs", "definitions", "additionalProperties"}
_STRING = r'''/"([^"\\\x00-\x1f]|\\["'\\nrt])*"|'([^'\\\x00-\x1f]|\\["'\\nrt])*'/'''
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
"""Keywords of numbers, which stand as in JSON."""
_NUMBER = r"/-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?/"
_ANY = "python_value"
"""The rule of a value of any kind."""
_MAX_DEPTH = 64
"""The most schemas in one another, by way of references, too; Python's stack ends behind some more."""


def python_expression(tool: Tool, lark: Lark) -> str:
    """Returns the expression of a tool's arguments. A GrammarError names a strict tool that has keywords which can't be
    demanded of Python's words."""
    check_keywords(tool, _ANNOTATIONS | {"type", "properties", "required"})
    properties = writable(tool, IDENTIFIER)
    return _Values(tool, lark).fields({**tool.parameters, "properties": properties}, lambda key: quoted(f"{key}="))


class _Values:
    """Writes the expressions of one tool's values."""

    def __init__(self, tool: Tool, lark: Lark) -> None:
        self._tool = tool
        self._lark = lark
        self._of_references: dict[str, str] = {}
        self._depth = 0

    def fields(self, schema: dict[str, Any], written: Callable[[str], str]) -> str:
        """Returns the expression of the properties of an object, in their order; those that are not required may be
        left out."""
        required = required_of(schema)
        later, first = "", ""  # what may stand behind a field, and where none stands yet
        for key, inner in reversed(properties_of(schema).items()):
            field = f"{written(key)} {self._value(inner)}"
            if key in required:
                first, later = self._lark.rule(f"{field} {later}"), self._lark.rule(f'", " {field} {later}')
            else:
                first = self._lark.rule(f"({field} {later} | {first})" if first else f"({field} {later})?")
                later = self._lark.rule(f'(", " {field})? {later}')
        return first

    def _value(self, schema: Any) -> str:
        """Returns the expression of a value; that of any value where schemas are nested too deep."""
        if self._depth == _MAX_DEPTH:
            if self._tool.is_strict:
                raise refused(self._tool, f"schemas must be nested at most {_MAX_DEPTH} levels deep, where references "
                                          "lead, too")
            return self._any()
        self._depth += 1
        try:
            return self._of_schema(schema)
        finally:
            self._depth -= 1

    def _of_schema(self, schema: Any) -> str:
        if not isinstance(schema, dict):
            return self._any()
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"])
        choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(choices, list) and choices:
            return f"({' | '.join(quoted(python_literal(choice)) for choice in choices)})"
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return f"({' | '.join(map(self._value, schema[key]))})"
        kinds = schema.get("type")
        kinds = dict.fromkeys(map(str, kinds if isinstance(kinds, list) and kinds else [kinds]))  # each once
        self._check(schema)
        return f"({' | '.join(self._of_kind(kind, schema) for kind in kinds)})"

    def _of_kind(self, kind: object, schema: dict[str, Any]) -> str:
        match kind:
            case "string":
                return self._string
            case "integer" | "number":
                bounds = {key: value for key, value in schema.items() if key in _BOUNDS}
                return self._lark.rule(f"%json {value_schema(self._tool, {'type': kind, **bounds})}")
            case "boolean":
                return '"True" | "False"'
            case "null":
                return '"None"'
            case "array":
                item = self._lark.rule(self._value(schema.get("items")))
                return _listed("[", item, "]")
            case "object" if isinstance(schema.get("properties"), dict):
                fields = self.fields(schema, lambda key: quoted(json.dumps(key, ensure_ascii=False) + ": "))
                return f'"{{" {fields} "}}"'
            case "object":
                value = self._value(schema.get("additionalProperties"))
                return _listed("{", self._lark.rule(f'{self._string} ": " {value}'), "}")
        return self._any()

    def _any(self) -> str:
        listed, pairs = _listed("[", _ANY, "]"), _listed("{", f'{self._string} ": " {_ANY}', "}")
        self._lark.define(_ANY, f'{self._string} | {_NUMBER} | "True" | "False" | "None" | {listed} | {pairs}')
        return _ANY

    @property
    def _string(self) -> str:
        return self._lark.rule(_STRING)

    def _reference(self, reference: str) -> str:
        """Returns the rule of what a reference points at, which may refer to itself."""
        if reference not in self._of_references:
            name = self._of_references[reference] = self._lark.reserved()
            self._lark.define(name, self._value(resolved(reference, self._tool.parameters)))
        return self._of_references[reference]

    def _check(self, schema: dict[str, Any]) -> None:
        """Refuses keywords that a strict tool has and that no rule demands."""
        unknown = schema.keys() - _ANNOTATIONS - _BOUNDS - {"type", "properties", "required", "items"}
        if unknown and self._tool.is_strict:
            raise refused(self._tool, GrammarError(f"`{min(unknown)}` is not supported in this model's calls"))


def _listed(opening: str, item: str, closing: str) -> str:
    """Returns the expression of any number of items between brackets."""
    return f'"{opening}" ({item} (", " {item})*)? "{closing}"'


def python_literal(value: object) -> str:
    """Returns a value of JSON in Python's words."""
    match value:
        case bool() | None:
            return str(value)
        case list():
            return f"[{', '.join(map(python_literal, value))}]"
        case dict():
            pairs = (f"{json.dumps(key, ensure_ascii=False)}: {python_literal(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)
