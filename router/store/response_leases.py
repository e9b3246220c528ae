"""Leases of responses of the background, and all that whoever makes a response stores of it."""

import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, insert

from penstock.router.store.database import Database
from penstock.router.store.leases import Lease
from penstock.router.store.records import UNFINISHED, ResponseStatus
from penstock.router.store.responses import stored
from penstock.router.store.tables import RESPONSE_EVENTS, RESPONSES


class ResponseLease(Lease):
    """The lease of one response, which is as it was when it was taken. It is lost once the response is cancelled or
    deleted, too."""

    _TABLE = RESPONSES
    _STATES = UNFINISHED
    _READ = (RESPONSES.c.id,)

    def __init__(self, database: Database, owner: str, row: Row[Any]) -> None:
        super().__init__(database, owner, row)
        self.response = stored(row)
        self.num_events = self.response.num_events

    async def begin(self, answer_name: str) -> None:
        """Notes that the response is being made, of the answer of this name."""
        await self._write((), status=ResponseStatus.IN_PROGRESS, answer_name=answer_name)

    async def save(self, events: Sequence[bytes]) -> None:
        """Stores the next events, if there are any."""
        await self._write(events)

    async def end(
        self, status: ResponseStatus, response: bytes, output_bytes: int, events: Sequence[bytes]
    ) -> None:
        """Ends the response, whose last events these are, and whose output has so many bytes."""
        await self._write(events, status=status, response=response,
                          item_bytes=self.response.item_bytes + output_bytes)

    async def _write(self, events: Sequence[bytes], **values: Any) -> None:
        number = self.num_events + len(events)
        async with self._held(RESPONSES.c.num_events == self.num_events, num_events=number, **values) as (
                connection, _):
            if events:
                content = zlib.compress(b"\n".join(events), 1)
                await connection.execute(insert(RESPONSE_EVENTS).values(
                    response_id=self.id, number=self.num_events, content=content))
        self.num_events = number
