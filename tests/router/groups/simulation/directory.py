"""The directory: which addresses there are at the moment, told a little late."""

import asyncio
from collections.abc import AsyncGenerator

LATE_SECONDS = 0.1


class SimulatedDirectory:
    """Lists addresses, which change."""

    def __init__(self) -> None:
        self.listed: frozenset[str] = frozenset()
        self._has_changed = asyncio.Event()

    def list(self, address: str, is_listed: bool = True) -> None:
        listed = self.listed | {address} if is_listed else self.listed - {address}
        if listed != self.listed:
            self.listed = listed
            self._has_changed.set()
            self._has_changed = asyncio.Event()

    async def watch(self) -> AsyncGenerator[frozenset[str], None]:
        last = None
        while True:
            has_changed = self._has_changed
            if self.listed != last:
                yield (last := self.listed)
            else:
                await has_changed.wait()
                await asyncio.sleep(LATE_SECONDS)
