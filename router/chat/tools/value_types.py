"""The types of a tool's parameters, by its schema, and values that stand as text, as JSON. Pure."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from penstock.router.chat.tools.literals import as_json
from penstock.router.grammar.references import resolved
from penstock.router.grammar.schema import TOLD

Types = frozenset[str]

_COMBINING = {"anyOf", "oneOf", "allOf"}

ALL: Types = frozenset({"string", "number", "boolean", "null", "array", "object"})
"""JSON's types; an integer is a number here."""
STRING: Types = frozenset({"string"})
OTHERS = ALL - STRING
_MAX_DEPTH = 16
"""How many references and alternatives are followed."""


def property_types(schema: Mapping[str, Any], key: str) -> Types:
    """Returns the types that the parameter of this name may have; all if the schema does not tell."""
    properties = schema.get("properties")
    return types_of(properties.get(key) if isinstance(properties, dict) else None, schema)


def types_of(schema: object, root: Mapping[str, Any]) -> Types:
    """Returns the types that a value may have by its schema, which may refer to parts of `root`."""
    return _types_of(schema, root, {}, 0)


def _types_of(schema: object, root: Mapping[str, Any], known: dict[int, Types], depth: int) -> Types:
    """Looks at each part of the schema once, however often others refer to it."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return ALL
    if id(schema) in known:
        return known[id(schema)]
    known[id(schema)] = found = ALL
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        found = frozenset("number" if name == "integer" else name for name in names if isinstance(name, str)) & ALL
    if isinstance(schema.get("enum"), list):
        found &= frozenset(map(type_of, schema["enum"]))
    if "const" in schema:
        found &= {type_of(schema["const"])}
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            found &= frozenset().union(*(_types_of(each, root, known, depth + 1) for each in schema[key]))
    for each in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found &= _types_of(each, root, known, depth + 1)
    if "$ref" in schema:
        found &= _types_of(resolved(schema["$ref"], root), root, known, depth + 1)
    known[id(schema)] = found or ALL
    return known[id(schema)]


def properties_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties of an object by their names, with those that are required and that it says nothing of."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    return {**properties, **{key: {} for key in required_of(schema) if key not in properties}}


def required_of(schema: Mapping[str, Any]) -> list[str]:
    """Returns the names of the properties that an object must have."""
    required = schema.get("required")
    return [key for key in required if isinstance(key, str)] if isinstance(required, list) else []


def choices_of(schema: Any, root: Mapping[str, Any]) -> list[Any] | None:
    """Returns the values that a schema lists, also in alternatives; None if there may be others."""
    schema = followed(schema, root)
    if not isinstance(schema, dict):
        return None
    if isinstance(schema.get("enum"), list):
        return schema["enum"] or None
    if "const" in schema or schema.get("type") == "null":
        return [schema.get("const")]
    for alternatives in (schema.get("anyOf"), schema.get("oneOf")):
        if isinstance(alternatives, list) and alternatives:
            each = [choices_of(inner, root) for inner in map(partial(followed, root=root), alternatives)
                    if not (isinstance(inner, dict) and _COMBINING & inner.keys())]
            is_known = len(each) == len(alternatives) and None not in each
            return [choice for choices in each for choice in choices or ()] if is_known else None
    return None


def followed(schema: Any, root: Mapping[str, Any]) -> Any:
    """Returns a schema, or the one that it refers to and says nothing else of than what people read."""
    for _ in range(_MAX_DEPTH):
        rest = {key: value for key, value in schema.items() if key not in TOLD} if isinstance(schema, dict) else {}
        match rest:
            case {"$ref": str(reference)} if len(rest) == 1:
                schema = resolved(reference, root)
            case {"allOf": [only]} if len(rest) == 1:
                schema = only
            case _:
                break
    return schema


def typed(text: str, types: Types) -> str:
    """Returns a value that stands as text, as JSON. One that is none of `types` is what it looks like, if it can't be a
    string, or else a string."""
    if types == STRING:
        return json.dumps(text, ensure_ascii=False)
    for value in (text.strip(), as_json(text.strip())):
        if value is None:
            continue
        try:
            kind = type_of(json.loads(value, parse_constant=_refuse))
        except (ValueError, RecursionError):
            continue
        if kind in types - STRING or "string" not in types:
            return value
    return json.dumps(text, ensure_ascii=False)


def type_of(value: object) -> str:
    """Returns the type that a value has in JSON."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
