"""Leases of responses of the background: of all routers one makes a response, and another goes on with it once that one
is gone."""

import zlib
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import case, insert, or_, select, update

from penstock.router.store.database import Database, clock_of
from penstock.router.store.leases import LEASE_SECONDS, LeaseLost
from penstock.router.store.records import UNFINISHED, ResponseStatus, StoredResponse
from penstock.router.store.responses import stored
from penstock.router.store.tables import RESPONSE_EVENTS, RESPONSES


class ResponseLeases:
    """The responses that a router makes; `owner` names the router, and no two that run have the same name."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def claim(self, held: Collection[str]) -> "ResponseLease | None":
        """Takes the oldest response that nobody makes, beside those `held` already; one of this name whose router has
        ended is free. Returns None if there is none."""
        async with self._database.writing() as connection:
            clock = clock_of(connection)
            is_free = or_(RESPONSES.c.lease_until.is_(None), RESPONSES.c.lease_until < clock,
                          RESPONSES.c.lease_owner == self._owner)
            oldest = (select(RESPONSES.c.id)
                      .where(RESPONSES.c.status.in_(UNFINISHED), is_free, RESPONSES.c.id.not_in(held))
                      .order_by(RESPONSES.c.created_at).limit(1).with_for_update(skip_locked=True))
            id = (await connection.execute(oldest)).scalar_one_or_none()
            if id is None:
                return None
            # One that nobody has left may have been the end of its router.
            num_faults = RESPONSES.c.lease_faults + case((RESPONSES.c.lease_owner.is_not(None), 1), else_=0)
            row = (await connection.execute(update(RESPONSES).where(RESPONSES.c.id == id).values(
                lease_owner=self._owner, lease_until=clock + LEASE_SECONDS, lease_faults=num_faults,
                ).returning(RESPONSES))).one()
        return ResponseLease(self._database, self._owner, stored(row), row.lease_faults)


class ResponseLease:
    """The lease of one response, which is as it was when it was taken. Every write renews it, and raises LeaseLost, and
    does nothing, where it is lost: another router has it, or it was cancelled or deleted."""

    def __init__(self, database: Database, owner: str, response: StoredResponse, num_faults: int) -> None:
        self._database = database
        self._owner = owner
        self.response = response
        self.num_faults = num_faults
        """How often its making has failed; a lease that was not released is a failure, too."""
        self.num_events = response.num_events

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

    async def release(self) -> None:
        """Leaves the response to any router, at once."""
        async with self._database.writing() as connection:
            await connection.execute(update(RESPONSES).where(
                RESPONSES.c.id == self.response.id, RESPONSES.c.lease_owner == self._owner).values(
                    lease_owner=None, lease_until=None))

    async def postpone(self, seconds: float) -> None:
        """Counts a fault, and leaves the response alone for so many seconds; then any router may take it."""
        async with self._database.writing() as connection:
            await connection.execute(update(RESPONSES).where(
                RESPONSES.c.id == self.response.id, RESPONSES.c.lease_owner == self._owner).values(
                    lease_owner=None, lease_until=clock_of(connection) + seconds,
                    lease_faults=RESPONSES.c.lease_faults + 1))

    async def _write(self, events: Sequence[bytes], **values: Any) -> None:
        number = self.num_events + len(events)
        async with self._database.writing() as connection:
            found = await connection.execute(update(RESPONSES).where(
                RESPONSES.c.id == self.response.id, RESPONSES.c.lease_owner == self._owner,
                RESPONSES.c.status.in_(UNFINISHED), RESPONSES.c.num_events == self.num_events).values(
                    lease_until=clock_of(connection) + LEASE_SECONDS, num_events=number, **values))
            if not found.rowcount:
                raise LeaseLost
            if events:
                content = zlib.compress(b"\n".join(events), 1)
                await connection.execute(insert(RESPONSE_EVENTS).values(
                    response_id=self.response.id, number=self.num_events, content=content))
        self.num_events = number
