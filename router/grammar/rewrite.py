"""Rewrites grammars that name a type or a length to a JSON schema or a regular expression."""

from collections.abc import Callable, Mapping

import orjson

from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec

_MAX_LENGTH = 100_000
_BY_FOUR = "(0[48]|[2468][048]|[13579][26])"
_DATE = (r"([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
         rf"|02-(0[1-9]|1[0-9]|2[0-8]))|([1-9][0-9]{_BY_FOUR}|([2468][048]|[13579][26])00)-02-29)")
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
TEXTS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "email": rf"[A-Za-z0-9_+-]{{1,32}}(\.[A-Za-z0-9_+-]{{1,31}})?@({_LABEL}\.){{1,3}}[A-Za-z]{{2,24}}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
}
"""Regular expressions for the texts of RFC 3339 from the year 1000 on, of RFC 5321 without quotation marks, and of RFC
9562."""
_VALUES = ("integer", "number", "boolean")
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}


def of_type(value: object) -> GrammarSpec:
    """Returns the grammar of one value: `value` names its type, or is `{"type": name}` with bounds for a number.

    The bounds are those of JSON schemas. Dates, times, addresses and the like are bare, without quotation marks.
    """
    wanted: Mapping[object, object] = value if isinstance(value, dict) else {"type": value}
    name = wanted.get("type")
    bounds = {key: bound for key, bound in wanted.items() if key != "type"}
    if not isinstance(name, str) or name not in (*_VALUES, *TEXTS):
        raise GrammarError(f"`type` must be one of {', '.join((*_VALUES, *TEXTS))}. Given: {name}")
    for key, bound in bounds.items():
        if key not in _BOUNDS or name not in ("integer", "number"):
            raise GrammarError(f"`{key}` is not supported for the type {name}")
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            raise GrammarError(f"`{key}` must be a number. Given: {bound}")
    if name in TEXTS:
        return GrammarSpec("regex", TEXTS[name])
    return GrammarSpec("json", orjson.dumps({"type": name} | bounds).decode())


def of_length(value: object) -> GrammarSpec:
    """Returns the grammar of so many units: `{"unit": "characters" | "words" | "items", "min": …, "max": …}`.

    Words have one space between them; items are the strings of a JSON array. Without `max` the answer has no end.
    """
    if not isinstance(value, dict) or value.keys() - {"unit", "min", "max"}:
        raise GrammarError("a length must be an object of `unit`, `min` and `max`")
    unit = value.get("unit")
    if not isinstance(unit, str) or unit not in _UNITS:
        raise GrammarError(f"`unit` must be one of {', '.join(_UNITS)}. Given: {unit}")
    low, high = value.get("min", 0), value.get("max")
    for key, bound in (("min", low), ("max", high)):
        if bound is not None and (type(bound) is not int or not 0 <= bound <= _MAX_LENGTH):
            raise GrammarError(f"`{key}` must be an integer, >= 0 and <= {_MAX_LENGTH}. Given: {bound}")
    if high is not None and high < max(1, low):
        raise GrammarError(f"`max` must be >= 1 and >= `min`. Given: {high}")
    return _UNITS[unit](low, high)


def _characters(low: int, high: int | None) -> GrammarSpec:
    return GrammarSpec("regex", f"(?s:.){_times(low, high)}")


def _words(low: int, high: int | None) -> GrammarSpec:
    words = r"[^\s]+( [^\s]+)" + _times(max(low - 1, 0), None if high is None else high - 1)
    return GrammarSpec("regex", words if low else f"({words})?")


def _items(low: int, high: int | None) -> GrammarSpec:
    bounds = {"minItems": low} | ({} if high is None else {"maxItems": high})
    return GrammarSpec("json", orjson.dumps({"type": "array", "items": {"type": "string"}} | bounds).decode())


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"


_UNITS: dict[str, Callable[[int, int | None], GrammarSpec]] = {
    "characters": _characters, "words": _words, "items": _items}
