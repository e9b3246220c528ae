"""Makes one form of the grammars that clients write on each API. ValidationError says what is wrong, in TGI's words
where it has any."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import orjson

from penstock.router.errors import ValidationError
from penstock.router.grammar import gbnf
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.rewrite import of_length, of_type
from penstock.router.grammar.spec import GrammarSpec

JSON_OBJECT = GrammarSpec("json", '{"type":"object"}')

_MAX_OPERATORS = 8
"""Each can double the work of compiling a grammar."""
_MAX_CHOICES = 1000
_MAX_CHOICE_TEXT = 32_768
_REGEX_SIGNS = frozenset(r"\.+*?()|[]{}^$#&-~/")


def check_grammar(value: object) -> object:
    """Returns a body's `grammar` if it has a shape that is read; ValueError if reading the body is to fail by it."""
    if value is None or isinstance(value, GrammarSpec):
        return value
    if not isinstance(value, dict):
        raise ValueError("must be an object of `type` and `value`")
    if missing := {"type", "value"} - value.keys():
        raise ValueError(f"missing field `{min(missing)}`")
    kind, inner = value["type"], value["value"]
    _check_kind(kind, _GRAMMARS)
    if kind == "regex" and not isinstance(inner, str):
        raise ValueError("the `value` of a regex must be a string")
    if kind == "json_schema":
        _check_named_schema(inner, "value")
    return value


def check_response_format(value: dict[str, Any]) -> dict[str, Any]:
    """Returns a body's `response_format` if it has a shape that is read; ValueError as in `check_grammar`."""
    if "value" in value:
        check_grammar(value)
        return value
    kind = value.get("type")
    _check_kind(kind, _FORMATS)
    if kind == "json_schema":
        _check_named_schema(value.get("json_schema"), "json_schema")
    if kind == "grammar" and not isinstance(value.get("grammar"), str):
        raise ValueError("`grammar` must be a string")
    return value


def _check_kind(kind: object, known: Collection[str]) -> None:
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"unknown `type`, expected one of {', '.join(f'`{name}`' for name in known)}")


def _check_named_schema(value: object, name: str) -> None:
    if not isinstance(value, dict) or "schema" not in value:
        raise ValueError(f"`{name}` must be an object with a `schema`")


def parse_grammar(value: dict[str, Any]) -> GrammarSpec:
    """Returns the grammar that TGI's `grammar` asks for; the value has passed `check_grammar`."""
    return _in_words(_GRAMMARS[value["type"]], value["value"])


def parse_response_format(value: dict[str, Any]) -> GrammarSpec | None:
    """Returns the grammar that OpenAI's `response_format` asks for, or TGI's, which has a `value`; None if any text
    will do. Other servers take a `schema` beside the type `json_object`.

    It has passed `check_response_format`.
    """
    if "value" in value:
        return parse_grammar(value)
    match value["type"]:
        case "json_object":
            return JSON_OBJECT if value.get("schema") is None else _in_words(_schema, value["schema"])
        case "json_schema":
            return _in_words(_named_schema, value["json_schema"])
        case "grammar":
            return _in_words(_grammar, value["grammar"])
    return None


def parse_guided(fields: Mapping[str, object]) -> GrammarSpec | None:
    """Returns the grammar that vLLM's extra fields ask for; None if none of them is there. Other fields are left alone.

    They are `structured_outputs`, an object of one of json, json_object, regex, choice and grammar, in which a switch
    may be off, or `guided_json` and so on, or SGLang's `ebnf`.
    """
    outputs = fields.get("structured_outputs")
    if outputs is None:
        outputs = {}
    if not isinstance(outputs, dict):
        raise ValidationError("`structured_outputs` must be an object")
    asked = [("structured_outputs", key, value) for key, value in outputs.items() if value not in (None, False)]
    asked += [(name, key, value) for name, key in _GUIDED_FIELDS.items() if (value := fields.get(name)) is not None]
    if not asked:
        return None
    if len(asked) > 1:
        raise ValidationError(f"grammar is not valid: one can be asked for, not {len(asked)}")
    [(field, key, value)] = asked
    if key == "json_object":
        return JSON_OBJECT
    if key not in _GUIDED:
        raise ValidationError(f"`{field}` is not supported with `{key}`")
    return _in_words(_GUIDED[key], value)


def _in_words(parse: Callable[[Any], GrammarSpec], value: object) -> GrammarSpec:
    try:
        return parse(value)
    except GrammarError as error:
        raise ValidationError(f"grammar is not valid: {error}") from error


def _schema(value: object) -> GrammarSpec:
    if not isinstance(value, dict | str):
        raise ValidationError("grammar is not supported")
    if isinstance(value, str):
        return GrammarSpec("json", value)
    try:
        return GrammarSpec("json", orjson.dumps(value).decode())
    except (orjson.JSONEncodeError, UnicodeError) as error:
        raise GrammarError(f"the schema can't be read: {error}") from error


def _named_schema(value: dict[str, Any]) -> GrammarSpec:
    """Reads `{"name": …, "schema": …}`; the schema is followed strictly, whatever `strict` says."""
    return _schema(value["schema"])


def _text(value: object, kind: str) -> str:
    if not isinstance(value, str):
        raise GrammarError(f"a {kind} must be a string")
    return value


def _regex(value: object) -> GrammarSpec:
    source = _text(value, "regex")
    if (len(source) - len(source.rstrip("\\"))) % 2:
        raise GrammarError("a regex must not end within an escape")  # llguidance leaves out the backslash
    return GrammarSpec("regex", source)


def _grammar(value: object) -> GrammarSpec:
    """Reads a grammar in either notation."""
    source = _text(value, "grammar")
    is_gbnf = gbnf.RULE.search(source) is not None
    sign = "::=" if is_gbnf else ":"
    if (num_rules := source.count(sign)) > gbnf.MAX_RULES:
        raise GrammarError(f"a grammar must have at most {gbnf.MAX_RULES} of `{sign}`. Given: {num_rules}")
    if is_gbnf:
        return GrammarSpec("gbnf", source)
    if "%json" in source:
        raise GrammarError("`%json` is not supported in a grammar; the type json takes a schema")
    num_operators = source.count("&") + source.count("~")
    if num_operators > _MAX_OPERATORS:
        raise GrammarError(f"a grammar must have at most {_MAX_OPERATORS} of `&` and `~`. Given: {num_operators}")
    return GrammarSpec("lark", source)


def _choice(value: object) -> GrammarSpec:
    if not isinstance(value, list) or not value or not all(isinstance(choice, str) and choice for choice in value):
        raise GrammarError("a choice must be a list of strings, none of them empty")
    if len(value) > _MAX_CHOICES or sum(map(len, value)) > _MAX_CHOICE_TEXT:
        raise GrammarError(f"a choice must have at most {_MAX_CHOICES} strings of {_MAX_CHOICE_TEXT} characters "
                           f"in all. Given: {len(value)} of {sum(map(len, value))}")
    return GrammarSpec("regex", "|".join(map(_literal, dict.fromkeys(value))))


def _literal(text: str) -> str:
    return "".join(f"\\{sign}" if sign in _REGEX_SIGNS else sign for sign in text)


_GRAMMARS: dict[str, Callable[[Any], GrammarSpec]] = {
    "json": _schema, "json_object": _schema, "json_schema": _named_schema, "regex": _regex, "choice": _choice,
    "lark": _grammar, "ebnf": _grammar, "gbnf": _grammar, "type": of_type, "length": of_length}
_FORMATS = ("text", "json_object", "json_schema", "grammar")
_GUIDED: dict[str, Callable[[Any], GrammarSpec]] = {
    "json": _schema, "regex": _regex, "choice": _choice, "grammar": _grammar}
_GUIDED_FIELDS = {**{f"guided_{key}": key for key in _GUIDED}, "ebnf": "grammar"}
