"""What clients write for a grammar, on each API, made into one form. ValidationError says what is wrong, in TGI's words
where it has any."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from penstock.router.errors import ValidationError
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.rewrite import of_length, of_type
from penstock.router.grammar.spec import GrammarSpec

JSON_OBJECT = GrammarSpec("json", '{"type":"object"}')

_MAX_OPERATORS = 8
"""Each can double the work of compiling a grammar."""
_MAX_CHOICES = 1000
_MAX_CHOICE_TEXT = 32_768
_REGEX_SIGNS = frozenset(r"\.+*?()|[]{}^$#&-~/")


def parse_grammar(value: object) -> GrammarSpec:
    """TGI's `grammar`: `{"type": …, "value": …}`, of the types in `_GRAMMARS`."""
    if not isinstance(value, dict) or "type" not in value:
        raise ValidationError("grammar is not valid: it must be an object of `type` and `value`")
    kind = value["type"]
    if not isinstance(kind, str) or kind not in _GRAMMARS:
        raise ValidationError(f"grammar is not valid: `type` must be one of {', '.join(_GRAMMARS)}. Given: {kind}")
    if "value" not in value:
        raise ValidationError("grammar is not valid: `value` is missing")
    return _in_words(_GRAMMARS[kind], value["value"])


def parse_response_format(value: object) -> GrammarSpec | None:
    """OpenAI's `response_format` in all its shapes, or TGI's, which has a `value`. None: any text."""
    if not isinstance(value, dict):
        raise ValidationError("`response_format` must be an object")
    if "value" in value:
        return parse_grammar(value)
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return JSON_OBJECT
        case "json_schema":
            return _in_words(_named_schema, value.get("json_schema"))
        case "grammar":
            return _in_words(_lark, value.get("grammar"))
        case other:
            raise ValidationError(f"`response_format` is not supported with the type {other}")


def parse_guided(fields: Mapping[str, object]) -> GrammarSpec | None:
    """vLLM's extra fields: `structured_outputs`, an object of one of json, regex, choice and grammar; or `guided_json`
    and so on. Others in `fields` are left alone; None if there is none of these."""
    outputs = fields.get("structured_outputs")
    if outputs is None:
        outputs = {}
    if not isinstance(outputs, dict):
        raise ValidationError("`structured_outputs` must be an object")
    asked = [("structured_outputs", key, value) for key, value in outputs.items() if value is not None]
    asked += [("guided", key, value) for key in _GUIDED if (value := fields.get(f"guided_{key}")) is not None]
    if not asked:
        return None
    if len(asked) > 1:
        raise ValidationError(f"grammar is not valid: one can be asked for, not {len(asked)}")
    [(field, key, value)] = asked
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


def _named_schema(value: object) -> GrammarSpec:
    """`{"name": …, "schema": …}`; the schema is followed strictly, whatever `strict` says."""
    if not isinstance(value, dict) or "schema" not in value:
        raise GrammarError("a `json_schema` must be an object with a `schema`")
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


def _lark(value: object) -> GrammarSpec:
    source = _text(value, "grammar")
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
    "lark": _lark, "ebnf": _lark, "type": of_type, "length": of_length}
_GUIDED: dict[str, Callable[[Any], GrammarSpec]] = {
    "json": _schema, "regex": _regex, "choice": _choice, "grammar": _lark}
