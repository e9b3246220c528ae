"""The totals that a process knows: those that are stored, and its own use that is on its way there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.router.accounts.use import Account, Spent, Use

_Key = tuple[str, str, str]
"""A day, the name of a key, and a currency."""


@dataclass(slots=True)
class Sums:
    """Use by account, and the tokens and money of it by key."""

    by_account: dict[Account, Use] = field(default_factory=dict)
    by_key: dict[_Key, Spent] = field(default_factory=dict)

    def add(self, account: Account, use: Use) -> None:
        """Adds a use."""
        self.by_account[account] = self.by_account.get(account, Use()) + use
        key = account.day, account.key, account.currency
        self.by_key[key] = self.by_key.get(key, Spent()).plus(use.spent)


class Ledger:
    """Knows how much each key has spent: as much as the store has told, and this process' own use that the store has
    not counted yet. The latter goes there in parts with numbers, each until it `has_arrived`."""

    def __init__(self) -> None:
        self.number = 0
        """Of the part on its way; a part that has not arrived is the same when it is sent again."""
        self._waiting, self._on_way = Sums(), Sums()
        self._stored: Mapping[_Key, Spent] = {}

    def add(self, account: Account, use: Use) -> None:
        """Adds a use of this process."""
        self._waiting.add(account, use)

    def part(self) -> Mapping[Account, Use]:
        """Returns the part that is to be stored next: the last one, unless it has arrived."""
        if not self._on_way.by_account and self._waiting.by_account:
            self._on_way, self._waiting = self._waiting, Sums()
            self.number += 1
        return self._on_way.by_account

    def has_arrived(self, stored: Mapping[_Key, Spent]) -> None:
        """Notes that the part is stored, and how much each key has spent by all that is stored now."""
        self._on_way, self._stored = Sums(), stored

    @property
    def num_left(self) -> int:
        """How many requests are not known to be stored."""
        return sum(use.requests for sums in (self._on_way, self._waiting) for use in sums.by_account.values())

    def spent(self, day: str, key: str, currency: str) -> Spent:
        """Returns the tokens and money that a key has spent on a day, as far as this process knows."""
        wanted = day, key, currency
        found = self._stored.get(wanted, Spent())
        for sums in (self._on_way, self._waiting):
            found = found.plus(sums.by_key.get(wanted, Spent()))
        return found
