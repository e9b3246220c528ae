"""The types of a tool's parameters, by its schema, and values that stand as text, as JSON. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.router.chat.tools_literals import as_json

Types = frozenset[str]

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


def types_of(schema: object, root: Mapping[str, Any], depth: int = 0) -> Types:
    """Returns the types that a value may have by its schema, which may refer to parts of `root`."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return ALL
    found = ALL
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        found = frozenset("number" if name == "integer" else name for name in names if isinstance(name, str)) & ALL
    if isinstance(schema.get("enum"), list):
        found &= frozenset(map(_type_of, schema["enum"]))
    if "const" in schema:
        found &= {_type_of(schema["const"])}
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            found &= frozenset().union(*(types_of(each, root, depth + 1) for each in schema[key]))
    for each in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found &= types_of(each, root, depth + 1)
    if "$ref" in schema:
        found &= types_of(resolved(schema["$ref"], root), root, depth + 1)
    return found or ALL


def resolved(reference: object, root: Mapping[str, Any]) -> object:
    """Returns the part of a schema that a reference points at; None if there is none."""
    found: object = root
    for step in reference.split("/")[1:] if isinstance(reference, str) and reference.startswith("#") else ("",):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def typed(text: str, types: Types) -> str:
    """Returns a value that stands as text, as JSON. One that is none of `types` is what it looks like, if it can't be a
    string, or else a string."""
    if types == STRING:
        return json.dumps(text, ensure_ascii=False)
    for value in (text.strip(), as_json(text.strip())):
        if value is None:
            continue
        try:
            kind = _type_of(json.loads(value, parse_constant=_refuse))
        except (ValueError, RecursionError):
            continue
        if kind in types - STRING or "string" not in types:
            return value
    return json.dumps(text, ensure_ascii=False)


def _type_of(value: object) -> str:
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
