"""The directory: which addresses there are at the moment, told a little late."""

import asyncio
from collections.abc import AsyncGenerator

from penstock.router.fleet.directory import Address

POLL_SECONDS = 0.1


class SimulatedDirectory:
    """Lists addresses, which change."""

    def __init__(self) -> None:
        self.listed: frozenset[Address] = frozenset()

    def list(self, address: Address, is_listed: bool = True) -> None:
        self.listed = self.listed | {address} if is_listed else self.listed - {address}

    async def watch(self) -> AsyncGenerator[frozenset[Address], None]:
        last = None
        while True:
            if self.listed != last:
                yield (last := self.listed)
            await asyncio.sleep(POLL_SECONDS)
