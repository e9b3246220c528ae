"""Refuses requests that break a rule, with OpenAI's words for the ways in which a number can."""

import math

from penstock.router.errors import ValidationError


def refuse_if(is_broken: bool, rule: str, code: str = "invalid_value") -> None:
    if is_broken:
        raise ValidationError(rule, code)


def beyond(
    value: float | None, *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf,
    most: float = math.inf
) -> str | None:
    """Returns OpenAI's word for a value that is there, and is not `above` one bound, at least another, `below` one or
    at most one; None for any other."""
    if value is None or (above < value < below and least <= value <= most):
        return None
    kind = "integer" if isinstance(value, int) else "decimal"
    return f"{kind}_below_min_value" if value <= above or value < least else f"{kind}_above_max_value"


def refuse_beyond(value: float | None, rule: str, **bounds: float) -> None:
    """Refuses a value that is beyond the bounds that `beyond` takes."""
    if code := beyond(value, **bounds):
        raise ValidationError(rule, code)
