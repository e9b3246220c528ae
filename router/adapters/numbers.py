"""The numbers by which shards know adapters."""

import secrets

MAX_OF_NAME = 16
"""How many of a name's numbers are remembered, the latest."""


class Numbers:
    """Gives each name and its files' digest a number that no other has: not another name, nor the same name once a
    file of it has changed. Whoever comes back after he was forgotten gets a new one."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}
        # Shards may outlive a router: the next one has other numbers.
        self._next = 1 + secrets.randbelow(2**31)

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def of(self, name: str, digest: str) -> int:
        """Returns the number of the files of this digest under a name."""
        numbers = self._known.setdefault(name, {})
        if digest not in numbers:
            if len(numbers) >= MAX_OF_NAME:
                del numbers[next(iter(numbers))]
            numbers[digest] = self._next
            self._next += 1
        return numbers[digest]

    def forget(self, name: str) -> None:
        """Lets go of a name's numbers, if it has any."""
        self._known.pop(name, None)
