"""The responses of the store, as clients ask for, see and cancel them; `response_leases.py` has what those do who make
them in the background."""

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from sqlalchemy import Row, Select, delete, func, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from penstock.router.store.database import Database
from penstock.router.store.errors import Conflict, NotStored
from penstock.router.store.records import UNFINISHED, VOID, ResponseStatus, StoredResponse
from penstock.router.store.tables import RESPONSE_EVENTS, RESPONSES

KEPT_SECONDS = 30 * 24 * 3600
"""How long a response is kept."""
MOST_LINKS = 10_000
"""How many responses may come one behind the other."""
SWEPT = 100
"""How many responses are deleted at once."""
READ_PARTS = 16
"""How many parts of a response's events are read at once."""


class Responses:
    """Responses, each a row. `changed` is set when a client of this router has asked for one in the background, or has
    cancelled one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.changed = asyncio.Event()

    async def add(self, response: StoredResponse) -> StoredResponse:
        """Adds a response. Returns the one that is there if its id is known: it was asked for twice, by one key or one
        seed. One that was cancelled, has failed or has expired makes room for it: it is asked for anew."""
        is_void = or_(RESPONSES.c.expires_at <= int(time.time()), RESPONSES.c.status.in_(VOID))
        void = select(RESPONSES.c.id).where(RESPONSES.c.id == response.id, is_void)
        values = {
            "id": response.id, "created_at": response.created_at,
            "expires_at": response.created_at + KEPT_SECONDS, "status": response.status,
            "previous_id": response.previous_id, "is_background": response.is_background,
            "request": response.request, "response": response.response,
            "item_bytes": response.item_bytes, "answer_name": response.answer_name,
            "num_events": 0, "lease_faults": 0, "api_key": response.api_key}
        try:
            async with self._database.writing() as connection:
                await connection.execute(delete(RESPONSE_EVENTS).where(RESPONSE_EVENTS.c.response_id.in_(void)))
                await connection.execute(delete(RESPONSES).where(RESPONSES.c.id == response.id, is_void))
                await connection.execute(insert(RESPONSES).values(values))
        except IntegrityError:
            return await self.get(response.id)
        if response.is_background:
            self.changed.set()
        return response

    async def get(self, id: str, param: str | None = None) -> StoredResponse:
        """Returns a response. Raises NotStored, which names `param` as the field that named it."""
        async with self._database.reading() as connection:
            row = (await connection.execute(_there().where(RESPONSES.c.id == id))).one_or_none()
        if row is None:
            raise NotStored("response", id, param)
        return stored(row)

    async def chain(self, id: str, most_bytes: int, param: str | None = None) -> AsyncGenerator[StoredResponse, None]:
        """Yields the responses of which one goes on from the other up to this one, the oldest first. Raises NotStored
        if one of them is gone, and Conflict if their items have too many bytes together. What they have beside their
        items may be much more: no more of it than `most_bytes`, or than one response has, is held at a time."""
        found = await self._links(id, most_bytes, param)
        begin = 0
        while begin < len(found):
            end, size = begin + 1, found[begin].size
            while end < len(found) and (size := size + found[end].size) <= most_bytes:
                end += 1
            ids = [row.id for row in found[begin:end]]
            async with self._database.reading() as connection:
                rows = (await connection.execute(_there().where(RESPONSES.c.id.in_(ids)))).all()
            by_id = {row.id: row for row in rows}
            for each in ids:
                if each not in by_id:  # it was deleted just now
                    raise NotStored("response", each, param)
                yield stored(by_id.pop(each))
            begin = end

    async def _links(self, id: str, most_bytes: int, param: str | None) -> Sequence[Row[Any]]:
        """Returns the ids of a chain, and the bytes that each of its responses has in all."""
        now = int(time.time())
        columns = (RESPONSES.c.id, RESPONSES.c.previous_id, RESPONSES.c.item_bytes,
                   (func.length(RESPONSES.c.request) + func.length(RESPONSES.c.response)).label("size"))
        links = select(*columns, literal(0).label("depth")).where(
            RESPONSES.c.id == id, RESPONSES.c.expires_at > now).cte("links", recursive=True)
        links = links.union_all(
            select(*columns, links.c.depth + 1).where(
                RESPONSES.c.id == links.c.previous_id, RESPONSES.c.expires_at > now, links.c.depth < MOST_LINKS))
        async with self._database.reading() as connection:
            found = (await connection.execute(select(links).order_by(links.c.depth.desc()))).all()
        missing = id if not found else found[0].previous_id
        if missing is not None:
            raise NotStored("response", missing, param)
        num_bytes = sum(row.item_bytes for row in found)
        if num_bytes > most_bytes:
            raise Conflict(f"the responses up to `{id}` have {num_bytes} bytes together, and a conversation may have "
                           f"{most_bytes}: begin another one")
        return found

    async def cancel(self, id: str) -> StoredResponse:
        """Cancels a response that is made in the background; one that has ended stays as it is. Raises NotStored, or
        Conflict for one that was not asked for in the background."""
        async with self._database.writing() as connection:
            row = (await connection.execute(update(RESPONSES).where(
                RESPONSES.c.id == id, RESPONSES.c.status.in_(UNFINISHED)).values(
                    status=ResponseStatus.CANCELLED).returning(RESPONSES))).one_or_none()
        self.changed.set()
        response = await self.get(id) if row is None else stored(row)
        if not response.is_background:
            raise Conflict(f"the response `{id}` can't be cancelled: it was not asked for in the background")
        return response

    async def delete(self, id: str) -> None:
        """Deletes a response; one that is being made is given up. Raises NotStored."""
        await self.get(id)
        await self._delete([id])
        self.changed.set()

    async def events(self, id: str, number: int) -> tuple[ResponseStatus, list[tuple[int, bytes]]]:
        """Returns the state of a response, and some of its events from this number on, each with its own; none if they
        are not there yet. Raises NotStored."""
        events = RESPONSE_EVENTS
        async with self._database.reading() as connection:
            status = (await connection.execute(
                select(RESPONSES.c.status).where(RESPONSES.c.id == id))).scalar_one_or_none()
            if status is None:
                raise NotStored("response", id)
            begin = select(func.max(events.c.number)).where(
                events.c.response_id == id, events.c.number <= number).scalar_subquery()
            parts = (await connection.execute(
                select(events.c.number, events.c.content).where(events.c.response_id == id, events.c.number >= begin)
                .order_by(events.c.number).limit(READ_PARTS))).all()
        found = [(part.number + index, event) for part in parts
                 for index, event in enumerate(zlib.decompress(part.content).split(b"\n"))]
        return ResponseStatus(status), [(each, event) for each, event in found if each >= number]

    async def sweep(self) -> None:
        """Deletes responses that have expired, some at a time, for a transaction must not take long."""
        ids: Sequence[str] = [""]
        while ids:
            async with self._database.reading() as connection:
                ids = (await connection.execute(select(RESPONSES.c.id).where(
                    RESPONSES.c.expires_at <= int(time.time())).limit(SWEPT))).scalars().all()
            if ids:
                await self._delete(ids)

    async def _delete(self, ids: Sequence[str]) -> None:
        async with self._database.writing() as connection:
            await connection.execute(delete(RESPONSE_EVENTS).where(RESPONSE_EVENTS.c.response_id.in_(ids)))
            await connection.execute(delete(RESPONSES).where(RESPONSES.c.id.in_(ids)))


def _there() -> Select[Any]:
    """Returns the query of all responses that have not expired."""
    return select(RESPONSES).where(RESPONSES.c.expires_at > int(time.time()))


def stored(row: Row[Any]) -> StoredResponse:
    """Returns the response that a row is."""
    return StoredResponse(row.id, row.created_at, ResponseStatus(row.status), row.previous_id, row.is_background,
                          row.request, row.response, row.item_bytes, row.answer_name, row.num_events, row.api_key)
