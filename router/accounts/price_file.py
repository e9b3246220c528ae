"""The file of prices and budgets, in YAML."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml  # type: ignore[import-untyped]
from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.router.accounts.prices import Budget, Price, Prices
from penstock.router.accounts.use import NANOS, Kind
from penstock.system.arguments import InvalidArgument

_DIGITS = 9
_OF_PROMPTS = {"computed", "cached"}
_WORDS = {"model_type": "must have fields", "dict_type": "must have fields", "list_type": "must be a list",
          "extra_forbidden": "is no field", "missing": "must be given", "decimal_type": "must be a number",
          "decimal_parsing": "must be a number", "decimal_max_places": f"must have at most {_DIGITS} decimal places",
          "int_from_float": "must be a whole number",
          "string_pattern_mismatch": "must be a name of letters, digits and _, that of a key also of . @ / and -"}
"""The words for kinds of mistakes for which pydantic's own are about Python."""


def _number(given: Any) -> Any:
    """Lets no true or false count as 1 or 0."""
    if isinstance(given, bool):
        raise ValueError("must be a number")
    return given


Amount = Annotated[Decimal, Ge(0), Le(10**9), Field(decimal_places=_DIGITS), BeforeValidator(_number)]
Rate = Annotated[Amount, Le(10**6)]
"""A price. The cost of thousands of requests at the highest ones is a number that databases hold."""
Count = Annotated[int, Ge(0), Le(10**15), BeforeValidator(_number)]
KeyName = Annotated[str, Field(pattern=r"^[\w.@/-]{1,64}$")]
ModelName = Annotated[str, Field(min_length=1, max_length=1000)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Price(_Shape):
    key: KeyName | None = None
    model: ModelName | None = None
    per_million_tokens: dict[Kind, Rate] = {}
    per_machine_second: Rate = Decimal(0)
    per_request: Rate = Decimal(0)


class _Budget(_Shape):
    key: KeyName | None = None
    money: Amount | None = None
    tokens: Count | None = None


class _File(_Shape):
    currency: Annotated[str, Field(pattern=r"^\w{1,16}$")]
    prices: list[_Price] = []
    budgets: list[_Budget] = []


class PriceFile:
    """The file of prices at a path, which can be read again while the server runs."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> Prices:
        """Returns the prices and budgets of the file. Raises InvalidArgument, which names the field that is
        wrong, and its value."""
        try:
            return self.of(yaml.safe_load(self._file.read_text()))
        except InvalidArgument as error:
            raise InvalidArgument(f"`prices`: {self._file}: {error}") from error
        except OSError as error:
            raise InvalidArgument(f"`prices`: cannot read {self._file}: {error.strerror}") from error
        except RecursionError as error:
            raise InvalidArgument(f"`prices`: {self._file}: its lists and mappings are nested too deep") from error
        except (yaml.YAMLError, ValueError) as error:  # a ValueError is of text that is not UTF-8, or of an odd date
            raise InvalidArgument(f"`prices`: {self._file} is no YAML: {error}") from error

    @classmethod
    def of(cls, content: Any) -> Prices:
        """Returns the prices that a file with this content has. Raises InvalidArgument."""
        try:
            found = _File.model_validate({} if content is None else content)
        except pydantic.ValidationError as error:
            raise InvalidArgument(_explained(error)) from error
        prices = [_price(f"prices.{place}", each) for place, each in enumerate(found.prices)]
        budgets = [_budget(f"budgets.{place}", each, found.prices) for place, each in enumerate(found.budgets)]
        _check_order(prices, budgets)
        return Prices(found.currency, prices, budgets)


def _price(where: str, given: _Price) -> Price:
    millions = {str(kind): _nanos(amount) for kind, amount in given.per_million_tokens.items()}
    if "input" in millions and (both := _OF_PROMPTS & {*millions}):
        raise InvalidArgument(f"`{where}.per_million_tokens`: `input` and `{min(both)}` can't be given together, since "
                              "tokens of prompts would be paid for twice")
    price = Price(given.key, given.model, millions, _nanos(given.per_machine_second), _nanos(given.per_request))
    if not given.model_fields_set - {"key", "model"}:
        raise InvalidArgument(f"`{where}` needs a price: `per_million_tokens`, `per_machine_second` or "
                              "`per_request`")
    return price


def _budget(where: str, given: _Budget, prices: Sequence[_Price]) -> Budget:
    if given.money is None and given.tokens is None:
        raise InvalidArgument(f"`{where}` needs `money` or `tokens`")
    if given.money is not None and not prices:
        raise InvalidArgument(f"`{where}.money`: nothing costs money without `prices`. Given: {given.money}")
    return Budget(given.key, None if given.money is None else _nanos(given.money), given.tokens)


def _check_order(prices: Sequence[Price], budgets: Sequence[Budget]) -> None:
    """Raises InvalidArgument for one that never holds, since one before it does."""
    for place, price in enumerate(prices):
        if any(before.holds_for(price.key, price.model) for before in prices[:place]):
            raise InvalidArgument(f"`prices.{place}` never holds, since one before it is for the same requests: of "
                                  f"key {price.key or 'any'} and model {price.model or 'any'}")
    for place, budget in enumerate(budgets):
        if any(before.key in (None, budget.key) for before in budgets[:place]):
            raise InvalidArgument(f"`budgets.{place}` never holds, since one before it is for the same key: "
                                  f"{budget.key or 'any'}")


def _nanos(amount: Decimal) -> int:
    return int(amount * NANOS)


def _explained(error: pydantic.ValidationError) -> str:
    """Returns the first thing that is wrong, in a sentence with the field and its value."""
    first = error.errors(include_url=False)[0]
    said = _WORDS.get(first["type"], first["msg"].removeprefix("Value error, ").replace("Input should be", "must be"))
    if not first["loc"]:
        return f"it {said}"
    given = "" if first["type"] == "missing" else f". Given: {first['input']!r:.100}"
    return f"`{'.'.join(str(part) for part in first['loc'] if part != '[key]')}` {said}{given}"
