"""Use that goes to the store part by part, whatever fails on the way, and is known meanwhile."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from penstock.router.accounts.keeper import Keeper, day_of
from penstock.router.accounts.ledger import Ledger
from penstock.router.accounts.use import Account, Spent, Use
from penstock.router.metrics.accounts import MAX_KEYS, AccountMetrics
from penstock.router.store.errors import StoreUnavailable

NOON = 1_764_417_600.0
DAY = day_of(NOON)


class Book:
    """Totals as the database keeps them. `fate` says what befalls the next write: it is lost before it is made, or
    nobody hears that it was made."""

    def __init__(self) -> None:
        self.sums: dict[Account, Use] = {}
        self.numbers: dict[str, int] = {}
        self.fate = ""

    async def add(
        self, writer: str, number: int, part: Mapping[Account, Use], day: str
    ) -> Mapping[tuple[str, str, str], Spent]:
        fate, self.fate = self.fate, ""
        if fate == "lost":
            raise StoreUnavailable
        if part and self.numbers.get(writer, 0) < number:
            self.numbers[writer] = number
            for account, use in part.items():
                self.sums[account] = self.sums.get(account, Use()) + use
        if fate == "unheard":
            raise StoreUnavailable
        spent: dict[tuple[str, str, str], Spent] = {}
        for account, use in self.sums.items():
            if account.day == day:
                key = day, account.key, account.currency
                spent[key] = spent.get(key, Spent()).plus(use.spent)
        return spent


class Process:
    """One of several routers."""

    def __init__(self, book: Book) -> None:
        self.metrics = AccountMetrics(CollectorRegistry())
        self.ledger = Ledger()
        self.keeper = Keeper(self.ledger, book, lambda: NOON, self.metrics.failed)


STEPS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(("use", "store", "lost", "unheard")), st.integers(1, 50)))


@settings(max_examples=50)
@given(STEPS)
async def test_nothing_is_lost_or_counted_twice(steps: list[tuple[int, str, int]]) -> None:
    book = Book()
    processes = [Process(book), Process(book)]
    own = [0, 0]
    for which, step, number in steps:
        process = processes[which]
        if step == "use":
            process.ledger.add(Account(DAY, "a", "m", "USD"), Use(1, input_tokens=number, nanos=number))
            own[which] += number
        else:
            book.fate = step
            await process.keeper.store()
        assert process.ledger.spent(DAY, "a", "USD").tokens >= own[which]
    for process in processes:
        await process.keeper.close()
    total = book.sums.get(Account(DAY, "a", "m", "USD"), Use())
    assert (total.input_tokens, total.nanos) == (sum(own), sum(own))
    for process in processes:
        assert await process.keeper.store()
        assert process.ledger.spent(DAY, "a", "USD") == total.spent


async def test_failures_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(book := Book())
    process.ledger.add(Account(DAY, "a", "m", "USD"), Use(1))
    for _ in range(2):
        book.fate = "lost"
        assert not await process.keeper.store()
    book.fate = "lost"
    await process.keeper.close()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the use of keys can't be stored now, and is kept in memory", "the use of 1 requests is lost"]


def test_the_labels_of_keys_are_bounded() -> None:
    registry = CollectorRegistry()
    metrics = AccountMetrics(registry)
    for number in range(MAX_KEYS + 5):
        metrics.used(Account(DAY, f"key-{number}", "m", "USD"), Use(1))
    told = {sample.labels["key"]: sample.value for metric in registry.collect() for sample in metric.samples
            if sample.name == "penstock_usage_requests_total"}
    assert len(told) == MAX_KEYS + 1
    assert told["other"] == 5
