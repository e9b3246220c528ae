"""The prices and budgets of an operator: which hold for a key and a model, and what a use costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.router.accounts.use import Use

_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Price:
    """The prices of the requests of a `key` to a `model`, each of them of all where it is None; in billionths of the
    currency."""

    key: str | None = None
    model: str | None = None
    per_million_tokens: Mapping[str, int] = field(default_factory=dict)
    """By kind of tokens."""
    per_machine_second: int = 0
    """Of the model's steps."""
    per_request: int = 0

    def cost(self, use: Use) -> int:
        """Returns the cost of a use, rounded to a billionth, half of one to the even number."""
        millionths = use.step_us * self.per_machine_second + sum(
            use.tokens(kind) * price for kind, price in self.per_million_tokens.items())
        return use.requests * self.per_request + _rounded(millionths, _MILLION)

    def holds_for(self, key: str | None, model: str | None) -> bool:
        """Tells whether these are the prices of a key's requests to a model; None stands for any of them."""
        return self.key in (None, key) and self.model in (None, model)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that the `key` may spend in a day, or if it is None each key that has no budget of its own. None stands
    for no bound; `nanos` are billionths of the currency."""

    key: str | None = None
    nanos: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Prices:
    """All prices and budgets; of each the first one that holds for a request is taken."""

    currency: str
    prices: Sequence[Price] = ()
    budgets: Sequence[Budget] = ()

    def cost(self, key: str, model: str, use: Use) -> int:
        """Returns the cost of a use, in billionths of the currency; nothing where there is no price."""
        price = next((each for each in self.prices if each.holds_for(key, model)), None)
        return 0 if price is None else price.cost(use)

    def budget_of(self, key: str) -> Budget | None:
        """Returns the budget of a key."""
        return next((each for each in self.budgets if each.key in (None, key)), None)

    @property
    def keys(self) -> set[str]:
        """The keys that are named."""
        named = [*(each.key for each in self.prices), *(each.key for each in self.budgets)]
        return {key for key in named if key is not None}

    @property
    def models(self) -> set[str]:
        """The models that are named."""
        return {each.model for each in self.prices if each.model is not None}


def _rounded(number: int, divisor: int) -> int:
    """Returns the nearest whole quotient; of two that are equally near the even one."""
    quotient, rest = divmod(number, divisor)
    return quotient + (2 * rest > divisor or (2 * rest == divisor and quotient % 2 == 1))
