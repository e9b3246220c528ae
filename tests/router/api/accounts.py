"""Servers that keep accounts, in a database of their own, by a clock that tests set."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.router.accounts.price_file import PriceFile
from penstock.router.generation.accounting import Accounting
from penstock.router.generation.around import Around
from penstock.router.metrics.metrics import Metrics
from penstock.router.store.database import Database
from penstock.router.store.store import Store

NOON = 1_764_417_600.0
TODAY, TOMORROW = "2025-11-29", "2025-11-30"
PRICES: dict[str, Any] = {"currency": "USD", "prices": [
    {"per_million_tokens": {"computed": 2, "cached": "0.25", "output": 8.5}, "per_machine_second": "0.001",
     "per_request": 0.000001}]}


class Accounts:
    """The accounts of one server, or of several that share a database."""

    def __init__(self, folder: Path, sqlite_folder: Path) -> None:
        self.now = NOON
        self.opened: list[Accounting] = []
        self.store = Store(Database.in_folder(shutil.copytree(sqlite_folder, folder / "accounts")))
        self._file = folder / "prices.yaml"
        self.set(**PRICES)

    def set(self, **content: Any) -> None:
        self._file.write_text(yaml.safe_dump(content))

    def around(self, **parts: Any) -> Callable[[Metrics], Around]:
        """Makes the parts around the answers, `parts` beside the accounts."""
        def around(metrics: Metrics) -> Around:
            accounting = _OwnAccounting(
                PriceFile(self._file), self.store.usage, metrics.accounts, clock=lambda: self.now)
            accounting.database = self.store.database
            self.opened.append(accounting)
            return Around(journal=accounting, accounting=accounting,
                          **{name: make(metrics) for name, make in parts.items()})

        return around


class _OwnAccounting(Accounting):
    """Closes its database when its server ends."""

    database: Database

    async def close(self) -> None:
        await super().close()
        await self.database.close()


@pytest.fixture
async def accounts(tmp_path: Path, sqlite_folder: Path) -> Accounts:
    return Accounts(tmp_path, sqlite_folder)
