"""Accounting: the use of each request is added to its key's account, and keys that have spent their budget are
refused."""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, Self

from penstock.router.accounts.errors import BudgetSpent
from penstock.router.accounts.keeper import Keeper, Totals, day_of
from penstock.router.accounts.ledger import Ledger
from penstock.router.accounts.price_file import PriceFile
from penstock.router.accounts.prices import Budget, Prices
from penstock.router.accounts.use import Account, Spent, Use, money
from penstock.router.foreign.attempt import Outcome
from penstock.router.generation.cost import Cost
from penstock.router.generation.request_record import AnyStream, Generation, RequestRecord
from penstock.router.metrics.accounts import AccountMetrics

log = logging.getLogger(__name__)

_USED = (Outcome.ANSWERED, Outcome.BROKEN, Outcome.LEFT)
"""The outcomes of questions to servers elsewhere of which answers have begun."""


class KnownTotals(Totals, Protocol):
    """Totals that can be looked up, too."""

    async def find(self, first: str, last: str, key: str | None, limit: int) -> list[tuple[Account, Use]]:
        """Returns up to `limit` totals of days from the first to the last, of one key or of all."""


class Accounting:
    """Is told of each request that has ended, and before each that begins. `clock` tells the seconds since 1970."""

    keeps_texts = False

    def __init__(
        self, file: PriceFile, totals: KnownTotals, metrics: AccountMetrics, clock: Callable[[], float] = time.time
    ) -> None:
        self.prices: Prices = file.read()
        self._file = file
        self._totals = totals
        self._metrics = metrics
        self._clock = clock
        self._ledger = Ledger()
        self._keeper = Keeper(self._ledger, totals, clock, metrics.failed)

    @classmethod
    async def opened(cls, file: Path, totals: KnownTotals, metrics: AccountMetrics) -> Self:
        """Begins with the prices of a file. Raises InvalidArgument."""
        accounting = cls(PriceFile(file), totals, metrics)
        await accounting._keeper.start()
        accounting.reload()  # whoever has changed it meanwhile was not heard
        return accounting

    def reload(self) -> str:
        """Reads the prices again, and returns a sentence about them. After an InvalidArgument those from before hold.
        """
        self.prices = self._file.read()
        return f"there are {len(self.prices.prices)} prices and {len(self.prices.budgets)} budgets now"

    def tell_unknown(self, keys: Collection[str], models: Collection[str]) -> None:
        """Tells the log of keys and models with prices or budgets that the server does not have."""
        for kind, names in (("key", self.prices.keys - {*keys}), ("model", self.prices.models - {*models})):
            for name in sorted(names):
                log.warning("`prices` names the %s %s, which this server does not have", kind, name)

    @property
    def today(self) -> str:
        """The day by UTC."""
        return day_of(self._clock())

    def admit(self, record: RequestRecord) -> None:
        """Lets a request begin, once for all that it asks. Raises BudgetSpent if its key has spent its budget."""
        if record.is_admitted:
            return
        key = record.key or ""
        if (found := self.budget_of(key)) is not None and (said := _spent(*found, self.prices.currency)):
            self._metrics.refused(key)
            now = datetime.fromtimestamp(self._clock(), UTC)
            opens = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            raise BudgetSpent(
                f"the budget of {f'the key `{key}`' if key else 'this server'} for {now.date()} is spent: {said}. It "
                f"opens again at {opens:%Y-%m-%dT%H:%M:%SZ}", math.ceil((opens - now).total_seconds()))
        record.is_admitted = True

    def budget_of(self, key: str) -> tuple[Budget, Spent] | None:
        """Returns the budget of a key, and how much of it is spent today."""
        budget = self.prices.budget_of(key)
        return None if budget is None else (budget, self._ledger.spent(self.today, key, self.prices.currency))

    def write(self, record: RequestRecord, status: int, path: str | None = None) -> None:
        """Adds the use of a request that has ended to its key's account of the day."""
        by_model: dict[str, Use] = {}
        for model, use in _uses(record):
            by_model[model] = by_model.get(model, Use(requests=1)) + use
        for model, use in by_model.items():
            account = Account(self.today, record.key or "", model, self.prices.currency)
            cost = self.prices.cost(account.key, model, use)
            self._ledger.add(account, priced := use + Use(nanos=cost))
            self._metrics.used(account, priced)

    async def find(self, first: str, last: str, key: str | None, limit: int) -> list[tuple[Account, Use]]:
        """Returns up to `limit` totals of days, of one key or of all, with all that this process knows. Raises
        StoreUnavailable."""
        await self._keeper.store()
        return await self._totals.find(first, last, key, limit)

    async def close(self) -> None:
        """Stores all use that is not stored yet."""
        await self._keeper.close()


def _spent(budget: Budget, spent: Spent, currency: str) -> str:
    """Returns how much of a budget is spent if that is all, or an empty text."""
    if budget.tokens is not None and spent.tokens >= budget.tokens:
        return f"{spent.tokens} of {budget.tokens} tokens"
    if budget.nanos is not None and spent.nanos >= budget.nanos:
        return f"{money(spent.nanos)} of {money(budget.nanos)} {currency}"
    return ""


def _uses(record: RequestRecord) -> Iterator[tuple[str, Use]]:
    """Yields the use of each model of which answers have begun, here or elsewhere."""
    for generation in record.generations:
        if any(map(_has_begun, generation.tries)):
            yield generation.model, _use(generation)
    for attempt in record.attempts:
        if attempt.is_counted and attempt.outcome in _USED:
            told = attempt.tokens
            cached = min(told.cached, told.input)
            yield attempt.model, Use(input_tokens=told.input, cached_tokens=cached,
                                     computed_tokens=told.input - cached, output_tokens=told.output)


def _has_begun(stream: AnyStream) -> bool:
    """Tells whether a step was made for an answer, or it was kept from before; not while it only waits."""
    return bool(stream.started_at is not None or stream.usage.step_seconds or stream.finish_reason)


def _use(generation: Generation) -> Use:
    """Returns the use of answers. Where no step was computed for a request, its answers were kept from before, or are
    those of another request, or did not begin."""
    charged = {id(each.request) for each in generation.tries if each.usage.step_seconds}

    def computed(streams: Sequence[AnyStream]) -> list[AnyStream]:
        return [each for each in streams if id(each.request) in charged]

    def kept(streams: Sequence[AnyStream]) -> list[AnyStream]:
        return [each for each in streams if id(each.request) not in charged and each.finish_reason is not None]

    firsts = generation.first_streams
    cost = Cost.of_streams(computed(generation.tries), computed(firsts), {})
    return Use(
        input_tokens=cost.input_tokens, computed_tokens=cost.computed_tokens, cached_tokens=cost.cached_tokens,
        replayed_tokens=cost.replayed_tokens, drafted_tokens=cost.drafted_tokens, accepted_tokens=cost.accepted_tokens,
        output_tokens=cost.output_tokens, step_us=cost.step_us, kv_token_ms=cost.kv_token_ms,
        kept_tokens=sum(each.num_tokens for each in kept(generation.tries)) + sum(
            len(each.request.input_ids) for each in kept(firsts)))
