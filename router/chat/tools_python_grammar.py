"""The rules of a grammar for the arguments of one tool, as Python writes those that have names."""

import json
from collections.abc import Callable
from typing import Any

from penstock.router.chat.tools import Tool
from penstock.router.chat.tools_lark import quoted
from penstock.router.chat.tools_schemas import refused, value_schema
from penstock.router.chat.tools_types import resolved
from penstock.router.grammar.matcher import GrammarError

_ANNOTATIONS = {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
                "$comment", "$schema", "$defs", "definitions", "additionalProperties"}
_STRING = r'''/"([^"\\\x00-\x1f]|\\["'\\nrt])*"|'([^'\\\x00-\x1f]|\\["'\\nrt])*'/'''
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
"""Keywords of numbers, which stand as in JSON."""
_NUMBER = r"/-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?/"
_ANY_RULE = "py_any"
_MAX_RULES = 2000
"""The most rules for one tool."""


def python_rules(name: str, tool: Tool) -> tuple[str, list[str]]:
    """Returns the expression of a tool's arguments, and the rules that it needs. A GrammarError names a strict tool
    that has keywords which can't be demanded of Python's words."""
    return _Rules(name, tool).arguments()


class _Rules:
    """Writes rules whose names begin with a prefix."""

    def __init__(self, prefix: str, tool: Tool) -> None:
        self._prefix = prefix
        self._tool = tool
        self._rules: list[str] = []
        self._of_references: dict[str, str] = {}
        self._number = 0

    def arguments(self) -> tuple[str, list[str]]:
        expression = self._fields(self._tool.parameters, lambda key: quoted(f"{key}="))
        return expression, [*self._rules, *self._any()]

    def _any(self) -> list[str]:
        """Returns the rules of a value of any kind, under this tool's names."""
        name = f"{self._prefix}_{_ANY_RULE}"
        if not any(name in rule for rule in self._rules):
            return []
        listed = f'"[" ({name} (", " {name})*)? "]"'
        pair = f'{_STRING} ": " {name}'
        return [f'{name}: {_STRING} | {_NUMBER} | "True" | "False" | "None" | {listed} | '
                f'"{{" ({pair} (", " {pair})*)? "}}"']

    def _define(self, expression: str) -> str:
        """Returns the name of a new rule."""
        self._number += 1
        if self._number > _MAX_RULES:
            raise refused(self._tool, "the schema is too large for this model's calls")
        name = f"{self._prefix}_v{self._number}"
        self._rules.append(f"{name}: {expression}")
        return name

    def _fields(self, schema: dict[str, Any], written: Callable[[str], str]) -> str:
        """Returns the expression of the properties of an object, in their order; those that are not required may be
        left out."""
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [key for key in schema.get("required") or () if isinstance(key, str)]
        properties = {**properties, **{key: {} for key in required if key not in properties}}
        later, first = "", ""  # what may stand behind a field, and where none stands yet
        for key, inner in reversed(properties.items()):
            field = f"{written(key)} {self._value(inner)}"
            if key in required:
                first, later = self._define(f"{field} {later}"), self._define(f'", " {field} {later}')
            else:
                first = self._define(f"({field} {later} | {first})" if first else f"({field} {later})?")
                later = self._define(f'(", " {field})? {later}')
        return first

    def _value(self, schema: Any) -> str:
        """Returns the expression of a value."""
        if not isinstance(schema, dict):
            return f"{self._prefix}_{_ANY_RULE}"
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(choices, list) and choices:
            return f"({' | '.join(quoted(python_literal(choice)) for choice in choices)})"
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return f"({' | '.join(map(self._value, schema[key]))})"
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        self._check(schema)
        return f"({' | '.join(self._of_kind(kind, schema) for kind in kinds)})"

    def _of_kind(self, kind: object, schema: dict[str, Any]) -> str:
        match kind:
            case "string":
                return _STRING
            case "integer" | "number":
                bounds = {key: value for key, value in schema.items() if key in _BOUNDS}
                return f"%json {value_schema(self._tool, {'type': kind, **bounds})}"
            case "boolean":
                return '"True" | "False"'
            case "null":
                return '"None"'
            case "array":
                item = self._define(self._value(schema.get("items")))
                return f'"[" ({item} (", " {item})*)? "]"'
            case "object" if isinstance(schema.get("properties"), dict):
                fields = self._fields(schema, lambda key: quoted(json.dumps(key, ensure_ascii=False) + ": "))
                return f'"{{" {fields} "}}"'
            case "object":
                value = self._value(schema.get("additionalProperties"))
                pair = f'{_STRING} ": " {value}'
                return f'"{{" ({pair} (", " {pair})*)? "}}"'
        return f"{self._prefix}_{_ANY_RULE}"

    def _reference(self, reference: Any) -> str:
        """Returns the rule of what a reference points at, which may refer to itself."""
        if reference not in self._of_references:
            self._number += 1
            name = self._of_references[reference] = f"{self._prefix}_r{self._number}"
            self._rules.append(f"{name}: {self._value(resolved(reference, self._tool.parameters))}")
        return self._of_references[reference]

    def _check(self, schema: dict[str, Any]) -> None:
        """Refuses keywords that a strict tool has and that no rule demands."""
        unknown = schema.keys() - _ANNOTATIONS - _BOUNDS - {"type", "properties", "required", "items"}
        if unknown and self._tool.is_strict:
            raise refused(self._tool, GrammarError(f"`{min(unknown)}` is not supported in this model's calls"))


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
