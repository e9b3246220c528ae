"""Checks JSON schemas as clients write them and makes them ready to be compiled."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.references import resolved
from penstock.router.grammar.rewrite import TEXTS

_MAX_DEPTH = 100
"""The most objects and arrays in one another; the compiler's own JSON parser ends at 128."""
_MAX_OPTIONAL = 400
"""The most properties that are not required: each may come next and takes four of the parser's 2,000 items."""
_MAX_VARIANTS = 1500
"""The most objects or arrays that one place may choose from: each takes a parser item."""
_MAX_MEETING = 10
"""The most patterns that one string may have to match. Each doubles the work of intersecting them; 13 take seconds."""
_MAX_NAME_PATTERNS = 100
"""The most patterns of property names: each pair is proved to be disjoint."""
_MAX_MULTIPLE = 10_000
"""The largest `multipleOf`, its zeros left off: there are as many states, made in advance."""
_FINEST = 1e-9
"""The step of numbers with a bound: they are multiples of it."""
_FRACTION = 1e-3
"""`_FINEST` is used only where it is at most this share of the distance between the bounds."""
_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every reader of JSON holds exactly (RFC 8259, section 6)."""

TOLD = frozenset({"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
                  "$comment"})
"""Keywords that bind nothing, and that only people read."""
_ANNOTATIONS = TOLD | {"$id", "$anchor", "contentEncoding", "contentMediaType", "discriminator"}
_IDENTITY = {"$schema", "$defs", "definitions"}
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalItems", "additionalProperties")
_COMBINING = {"anyOf", "oneOf", "allOf", "$ref"}
_KNOWN = _ANNOTATIONS | _IDENTITY | _COMBINING | {*_NAMED, *_LISTED, *_SINGLE} | {
    "type", "const", "enum", "required", "minItems", "maxItems", "minProperties", "maxProperties", "minLength",
    "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_FORMATS = ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")

_Schema = dict[str, Any]


def prepare(source: str, item_separator: str = ",", key_separator: str = ":") -> str:
    """Returns the schema that is compiled for `source`, as JSON in one line. GrammarError names the keyword at fault.

    It accepts JSON without white space (or with what the separators, regular expressions, allow), valid by the client's
    schema. Where that leaves much open, it accepts less, so that a weak model comes to an end: an object with
    `properties` that says nothing of others has no others and is an object; an integer, and a number with a bound, is
    within what every reader of JSON holds, such a number with at most nine decimals. That is not done where schemas are
    combined, since it could leave nothing."""
    try:
        schema = orjson.loads(source)
    except orjson.JSONDecodeError as error:
        raise GrammarError(f"the schema is no JSON: {error}") from error
    schema = {} if schema is True else schema
    _refuse_if(not isinstance(schema, dict), "a schema must be an object")
    _check_depth(schema)
    nodes = list(_nodes(schema))
    for node in nodes:
        _check(node)
    num_names = sum(_size(node.get("patternProperties")) for node in nodes)
    _refuse_if(num_names > _MAX_NAME_PATTERNS,
               f"there must be at most {_MAX_NAME_PATTERNS} of `patternProperties`. Given: {num_names}")
    _check_meeting(schema)
    if any(_combines(node) for node in nodes):
        _refuse_if(math.prod(_digits(node) for node in nodes) > _MAX_MULTIPLE,
                   "where schemas are combined, `multipleOf` is not supported but for small numbers")
    else:
        for node in nodes:
            _narrow(node)
    schema["x-guidance"] = {
        "whitespace_flexible": False, "item_separator": item_separator, "key_separator": key_separator}
    return orjson.dumps(schema).decode()


def _refuse_if(is_broken: bool, rule: str) -> None:
    if is_broken:
        raise GrammarError(rule)


def _check_depth(value: object) -> None:
    depth, level = 0, [value]
    while level:
        depth += 1
        _refuse_if(depth > _MAX_DEPTH, f"a schema must be nested at most {_MAX_DEPTH} levels deep")
        level = [child for item in level if isinstance(item, dict | list)
                 for child in (item.values() if isinstance(item, dict) else item)]


def _nodes(schema: _Schema) -> Iterator[_Schema]:
    """Yields the schema and all schemas in it that are objects."""
    waiting: list[object] = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        yield node
        for key in _NAMED:
            if isinstance(named := node.get(key), dict):
                waiting.extend(named.values())
        for key in _LISTED:
            if isinstance(listed := node.get(key), list):
                waiting.extend(listed)
        waiting.extend(node.get(key) for key in _SINGLE)


def _check(node: _Schema) -> None:
    """Refuses keywords that would be ignored or cost too much; drops those that say nothing about the answer."""
    for key in list(node):
        _refuse_if(key not in _KNOWN, f"`{key}` is not supported")
        if key in _ANNOTATIONS:
            del node[key]
    if isinstance(reference := node.get("$ref"), str):
        _refuse_if(reference != "#" and not reference.startswith("#/"),
                   f"`$ref` is supported within the schema, from its root on. Given: {_show(reference)}")
    if isinstance(pattern := node.get("pattern"), str):
        node["pattern"] = _without_controls(pattern)
    if isinstance(named := node.get("patternProperties"), dict):
        node["patternProperties"] = {_without_controls(pattern): value for pattern, value in named.items()}
    if "format" in node:
        _refuse_if(node["format"] not in _FORMATS, f"`format` {_show(node['format'])} is not supported")
        if node["format"] in ("date", "date-time") and "pattern" not in node:  # llguidance's have each 29 February
            node["pattern"] = f"^{TEXTS[node.pop('format')]}$"
        _refuse_if("string" not in _types(node.get("type", "string")), "`format` is supported for strings alone")
    if isinstance(properties := node.get("properties"), dict):
        num_optional = len(properties.keys() - set(_strings(node.get("required"))))
        _refuse_if(num_optional > _MAX_OPTIONAL,
                   f"`properties` must have at most {_MAX_OPTIONAL} that are not required. Given: {num_optional}")
    for key in ("enum", "anyOf", "oneOf"):
        variants = [value for value in _list(node.get(key)) if isinstance(value, dict | list)]
        _refuse_if(len(variants) > _MAX_VARIANTS,
                   f"`{key}` must have at most {_MAX_VARIANTS} objects and arrays. Given: {len(variants)}")
    multiple = node.get("multipleOf")
    _refuse_if(not 0 < _digits(node) <= _MAX_MULTIPLE, f"`multipleOf` {multiple} is not supported")


def _without_controls(pattern: str) -> str:
    """Returns the pattern with its negated classes excluding control characters too.

    llguidance 1.9 lets a class that has all of them match an escaped quotation mark and backslash too, so that `[^"]`
    would accept what it excludes.
    """
    return re.sub(r"\\.|\[\^", lambda found: r"[^\x00-\x1f" if found[0] == "[^" else found[0], pattern, flags=re.DOTALL)


def _combines(node: _Schema) -> bool:
    """Tells whether the schema is the intersection of schemas."""
    keys = node.keys() - _IDENTITY
    return (len(keys) > 1 and not keys.isdisjoint(_COMBINING)) or _size(node.get("allOf")) > 1


def _check_meeting(schema: _Schema) -> None:
    try:
        num_meeting = _num_meeting(schema, schema, {})
    except RecursionError:
        raise GrammarError("`$ref`: too many lead to one another") from None
    _refuse_if(num_meeting > _MAX_MEETING,
               f"a string must have to match at most {_MAX_MEETING} of `pattern` and `format`. Given: {num_meeting}")


def _num_meeting(node: object, root: _Schema, known: dict[int, int]) -> int:
    """Returns how many patterns a string in `node`, at any depth, has to match at most. `known` maps schemas' ids."""
    if not isinstance(node, dict):
        return 0
    if id(node) not in known:
        known[id(node)] = 0  # one that contains itself is no intersection, or is refused by the compiler
        children = [child for key in ("properties", "patternProperties") for child in _named(node.get(key))]
        children += [child for key in ("prefixItems", "items") for child in _list(node.get(key))]
        children += [node.get(key) for key in _SINGLE]
        own = ("pattern" in node) + ("format" in node)
        here = max([own, *(_num_meeting(child, root, known) for child in children)])
        here += sum(_num_meeting(child, root, known) for child in _list(node.get("allOf")))
        for key in ("anyOf", "oneOf"):
            here += max((_num_meeting(child, root, known) for child in _list(node.get(key))), default=0)
        known[id(node)] = here + _num_meeting(resolved(node.get("$ref"), root), root, known)
    return known[id(node)]


def _narrow(node: _Schema) -> None:
    properties = node.get("properties")
    if isinstance(properties, dict) and properties and node.keys().isdisjoint({"const", "enum"}):
        node.setdefault("type", "object")
        if (node.keys().isdisjoint({"patternProperties", "minProperties", "maxProperties"})
                and properties.keys() >= set(_strings(node.get("required")))):
            node.setdefault("additionalProperties", False)
    types = _types(node.get("type"))
    low = node.get("minimum", node.get("exclusiveMinimum"))
    high = node.get("maximum", node.get("exclusiveMaximum"))
    if "number" in types and (low, high) != (None, None):
        _narrow_number(node, low, high)
    if "integer" in types and "number" not in types:
        if low is None and (high is None or (_is_number(high) and high > -_SAFE_INTEGER)):
            node["minimum"] = -_SAFE_INTEGER
        if high is None and (low is None or (_is_number(low) and low < _SAFE_INTEGER)):
            node["maximum"] = _SAFE_INTEGER


def _narrow_number(node: _Schema, low: object, high: object) -> None:
    """Bounds the digits of a number that has a bound, which is then written without an exponent."""
    low, high = -_SAFE_INTEGER if low is None else low, _SAFE_INTEGER if high is None else high
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return  # the compiler says what is wrong with it
    if (high - low) * _FRACTION >= _FINEST:
        if "minimum" not in node and "exclusiveMinimum" not in node:
            node["minimum"] = low
        if "maximum" not in node and "exclusiveMaximum" not in node:
            node["maximum"] = high
        node.setdefault("multipleOf", _FINEST)


def _digits(node: _Schema) -> int:
    """Returns `multipleOf` without the zeros at its ends, as an integer; 1 if there is none, 0 if it is no number, not
    positive or too large."""
    multiple = node.get("multipleOf", 1)
    if not _is_number(multiple) or not 0 < multiple <= 1e7:
        return 0
    return int(f"{multiple:.15f}".replace(".", "").strip("0") or 0)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _size(value: object) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _strings(value: object) -> list[str]:
    return [item for item in _list(value) if isinstance(item, str)]


def _named(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else []


def _types(value: object) -> list[object]:
    return _list(value) if isinstance(value, list) else [value]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _show(value: object) -> str:
    return json.dumps(value)[:60]
