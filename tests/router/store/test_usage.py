"""Totals of use in the database, to which several servers add."""

import asyncio

import pytest

from penstock.router.accounts.use import NAMES, Account, Spent, Use
from penstock.router.store import usage
from penstock.router.store.store import Store

DAY, NEXT = "2026-11-29", "2026-11-30"
ALL = Use(*range(1, len(NAMES) + 1))
ONE = Account(DAY, "a", "m", "USD")


async def test_servers_add_up(store: Store) -> None:
    parts = [(writer, number) for writer in ("x", "y", "z") for number in range(1, 6)]
    for number in range(1, 6):
        await asyncio.gather(*(store.usage.add(writer, number, {ONE: ALL, ONE._replace(model="n"): ALL}, DAY)
                               for writer in ("x", "y", "z")))
    total = Use(*(len(parts) * getattr(ALL, name) for name in NAMES))
    assert await store.usage.find(DAY, DAY, None, 10) == [(ONE, total), (ONE._replace(model="n"), total)]


async def test_a_part_is_added_once(store: Store) -> None:
    """It comes again after a commit of which nobody heard."""
    for _ in range(2):
        spent = await store.usage.add("w", 1, {ONE: Use(1, input_tokens=3, output_tokens=4, nanos=5)}, DAY)
        assert spent == {(DAY, "a", "USD"): Spent(7, 5)}
    await store.usage.add("w", 2, {ONE: Use(1, nanos=5)}, DAY)
    assert await store.usage.add("w", 2, {}, DAY) == {(DAY, "a", "USD"): Spent(7, 10)}


async def test_totals_are_found_by_day_and_key(store: Store) -> None:
    accounts = [Account(day, key, "m", currency) for day in (DAY, NEXT) for key in ("a", "b")
                for currency in ("EUR", "USD")]
    await store.usage.add("w", 1, dict.fromkeys(accounts, Use(1, nanos=2**62)), DAY)
    assert [account for account, _ in await store.usage.find(DAY, NEXT, None, 100)] == accounts
    assert [account for account, _ in await store.usage.find(NEXT, NEXT, "b", 100)] == accounts[-2:]
    assert [account for account, _ in await store.usage.find(DAY, NEXT, None, 3)] == accounts[:3]
    assert await store.usage.add("w", 1, {}, NEXT) == {(NEXT, key, currency): Spent(0, 2**62)
                                                       for key in ("a", "b") for currency in ("EUR", "USD")}


async def test_processes_that_are_gone_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.usage.add("w", 5, {ONE: Use(1)}, DAY)
    await store.usage.sweep()
    await store.usage.add("w", 5, {ONE: Use(1)}, DAY)
    monkeypatch.setattr(usage, "KEPT_SECONDS", -1.0)
    await store.usage.sweep()
    await store.usage.add("w", 5, {ONE: Use(1)}, DAY)
    [(_, use)] = await store.usage.find(DAY, DAY, "a", 2)
    assert use.requests == 2
