"""Keeps a ledger and the store equal: this process' use goes there, and what others have spent comes back."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from penstock.router.accounts.ledger import Ledger
from penstock.router.accounts.use import Account, Spent, Use

log = logging.getLogger(__name__)

SECONDS = 2.0
"""How often use is stored, and how late each process knows what others have spent, at most twice."""
FAREWELL_SECONDS = 2.0
"""How long it may take to store the last when the server ends."""


class Totals(Protocol):
    """Keeps totals of use."""

    async def add(
        self, writer: str, number: int, part: Mapping[Account, Use], day: str
    ) -> Mapping[tuple[str, str, str], Spent]:
        """Adds a part of the use of a `writer`, unless it has added the one of this number. Returns what each key has
        spent on the `day` in all, by day, key and currency. Any exception means that it is to be tried again."""


class Keeper:
    """Stores the use of a ledger behind the answers, again and again. `clock` tells the seconds since 1970, and each
    failure is told by `on_failure`."""

    def __init__(
        self, ledger: Ledger, totals: Totals, clock: Callable[[], float], on_failure: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._totals = totals
        self._on_failure = on_failure
        self._clock = clock
        self._writer = secrets.token_hex(16)
        self._turn = asyncio.Lock()
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Asks for the totals of the day, as far as the store can be reached, and begins."""
        await self.store()
        self._task = asyncio.create_task(self._keep(), name="accounts")

    async def store(self) -> bool:
        """Stores all use that waits; tells whether that has succeeded. A failure is counted, and told once."""
        async with self._turn:
            part = self._ledger.part()
            try:
                stored = await self._totals.add(self._writer, self._ledger.number, part, day_of(self._clock()))
            except Exception as error:
                self._on_failure()
                if not self._has_failed:
                    log.error("the use of keys can't be stored now, and is kept in memory: %s", error)
                self._has_failed = True
                return False
            self._ledger.has_arrived(stored)
            self._has_failed = False
            return True

    async def close(self) -> None:
        """Stores the last, as far as that takes no long time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while self._ledger.num_left and await self.store():
                    pass
        except TimeoutError:
            pass
        if number := self._ledger.num_left:
            log.error("the use of %d requests is lost: it could not be stored", number)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            await self.store()


def day_of(at: float) -> str:
    """Returns the day of a time, by UTC."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()
