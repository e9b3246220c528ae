"""The use that requests have made of a model: whole numbers, which add up exactly."""

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Literal, NamedTuple, get_args

Kind = Literal["input", "computed", "cached", "replayed", "drafted", "accepted", "output", "kept"]
TOKENS: tuple[Kind, ...] = get_args(Kind)
"""The kinds of tokens, as receipts have them, and those of answers that were kept from before."""
NANOS = 10**9
"""How many of the units in which money is counted are one of the currency."""


class Account(NamedTuple):
    """Names an account to which use is added: by the day, as 2026-11-29 by UTC, the name of a key, a model, and the
    currency of its prices. Requests without a key have an empty name."""

    day: str
    key: str
    model: str
    currency: str


@dataclass(frozen=True, slots=True)
class Use:
    """Counts requests, their tokens, their share of the time of the model's steps in microseconds, their KV
    token-milliseconds, and what they cost, in billionths of the currency."""

    requests: int = 0
    input_tokens: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    replayed_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    output_tokens: int = 0
    kept_tokens: int = 0
    """The tokens of prompts and answers that were not computed, since the answers were kept from before."""
    step_us: int = 0
    kv_token_ms: int = 0
    nanos: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(*(getattr(self, name) + getattr(other, name) for name in NAMES))

    def tokens(self, kind: str) -> int:
        """Returns the number of tokens of one of the kinds."""
        number: int = getattr(self, f"{kind}_tokens")
        return number

    @property
    def spent(self) -> "Spent":
        """The part that budgets bound."""
        return Spent(self.input_tokens + self.output_tokens, self.nanos)


NAMES = tuple(field.name for field in fields(Use))


class Spent(NamedTuple):
    """Counts the tokens of prompts and answers, and money, which budgets bound."""

    tokens: int = 0
    nanos: int = 0

    def plus(self, other: "Spent") -> "Spent":
        """Returns the sum of both."""
        return Spent(self.tokens + other.tokens, self.nanos + other.nanos)


def money(nanos: int) -> str:
    """Returns an amount as a decimal number, exactly."""
    return f"{Decimal(nanos).scaleb(-9).normalize():f}"
