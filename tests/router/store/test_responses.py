"""Responses of the store: chains of them, and leases of those that are made in the background."""

import asyncio
import time
import zlib
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from penstock.router.store import leases
from penstock.router.store import responses as responses_module
from penstock.router.store.errors import Conflict, NotStored
from penstock.router.store.leases import LeaseLost
from penstock.router.store.records import ResponseStatus, StoredResponse
from penstock.router.store.response_leases import ResponseLease
from penstock.router.store.store import Store
from penstock.router.store.tables import RESPONSE_EVENTS, RESPONSES


def response(id: str, previous: str | None = None, is_background: bool = False) -> StoredResponse:
    status = ResponseStatus.QUEUED if is_background else ResponseStatus.COMPLETED
    return StoredResponse(id, int(time.time()), status, previous, is_background, b"12345", b"67890", 10, "a.5.b")


async def claim(store: Store, owner: str = "one") -> ResponseLease:
    lease = await ResponseLease.claim(store.database, owner, ())
    assert lease is not None
    return lease


async def queued(store: Store, id: str = "resp_1") -> ResponseLease:
    await store.responses.add(response(id, is_background=True))
    return await claim(store)


async def chain(store: Store, id: str, most_bytes: int) -> list[StoredResponse]:
    return [each async for each in store.responses.chain(id, most_bytes)]


async def test_chains(store: Store) -> None:
    made = [response(f"resp_{number}", f"resp_{number - 1}" if number else None) for number in range(50)]
    for each in made:
        await store.responses.add(each)
    assert await chain(store, "resp_49", 500) == made
    assert await chain(store, "resp_0", 500) == made[:1]
    with pytest.raises(Conflict, match="have 500 bytes together, and a conversation may have 499"):
        await chain(store, "resp_49", 499)
    await store.responses.delete("resp_20")
    for ask in (chain(store, "resp_49", 500), chain(store, "resp_20", 500)):
        with pytest.raises(NotStored, match="There is no response `resp_20`"):
            await ask
    assert await chain(store, "resp_19", 500) == made[:20]


async def test_a_response_that_is_there_stays(store: Store) -> None:
    await store.responses.add(response("resp_1"))
    other = response("resp_1", "resp_0")
    assert await store.responses.add(other) == await store.responses.get("resp_1") != other


async def test_what_a_chain_has_beside_its_items_is_not_held_at_once(store: Store) -> None:
    made = [replace(response(f"resp_{number}", f"resp_{number - 1}" if number else None), response=b"6" * 2000)
            for number in range(9)]
    for each in made:
        await store.responses.add(each)
    found = store.responses.chain("resp_8", 5000)
    assert [await anext(found) for _ in range(5)] == made[:5]
    await store.responses.delete("resp_7")  # which was not read yet
    assert await anext(found) == made[5]
    with pytest.raises(NotStored, match="There is no response `resp_7`"):
        [each async for each in found]


@pytest.mark.parametrize("values", [{"status": "cancelled"}, {"status": "failed"}, {"expires_at": 1}])
async def test_one_of_no_use_makes_room(store: Store, values: dict[str, Any]) -> None:
    lease = await queued(store)
    await lease.save([b"a"])
    async with store.database.writing() as connection:
        await connection.execute(update(RESPONSES).values(values))
    again = response("resp_1", "resp_0", is_background=True)
    assert await store.responses.add(again) == await store.responses.get("resp_1") == again
    assert await store.responses.events("resp_1", 0) == (ResponseStatus.QUEUED, [])
    with pytest.raises(LeaseLost):
        await lease.save([b"b"])


async def test_each_response_has_one_owner(store: Store) -> None:
    for number in range(3):
        await store.responses.add(response(f"resp_{number}", is_background=True))
    claims = (ResponseLease.claim(store.database, f"router {number}", ()) for number in range(5))
    assert sorted(lease.id for lease in await asyncio.gather(*claims) if lease) == ["resp_0", "resp_1", "resp_2"]


async def test_events_come_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await queued(store)
    monkeypatch.setattr(responses_module, "READ_PARTS", 2)
    events = [b"%d" % number for number in range(10)]
    await lease.begin("a.5.b")
    for begin, end in ((0, 4), (4, 5), (5, 9)):
        await lease.save(events[begin:end])
    await lease.end(ResponseStatus.COMPLETED, b"whole", 5, events[9:])
    for number in range(10):
        found, behind = [], number
        while (part := await store.responses.events("resp_1", behind))[1]:
            found += part[1]
            behind = found[-1][0] + 1
        assert found == [(each, events[each]) for each in range(number, 10)]
        assert part[0] is ResponseStatus.COMPLETED
    kept = await store.responses.get("resp_1")
    assert (kept.response, kept.item_bytes, kept.num_events) == (b"whole", 15, 10)
    with pytest.raises(NotStored):
        await store.responses.events("resp_2", 0)


async def test_a_lease_that_is_lost_writes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.0)
    lease = await queued(store)
    await lease.save([b"a"])  # nobody else wanted it
    other = await claim(store, "other")
    assert (other.num_faults, other.num_events) == (1, 1)
    for write in (lease.save([b"b"]), lease.begin("c"), lease.end(ResponseStatus.FAILED, b"", 0, [b"b"]),
                  lease.postpone(60, 3)):
        with pytest.raises(LeaseLost):
            await write
    await lease.release()
    await other.save([b"b"])
    assert await store.responses.events("resp_1", 0) == (ResponseStatus.QUEUED, [(0, b"a"), (1, b"b")])


async def test_one_that_was_released_is_taken_at_once(store: Store) -> None:
    lease = await queued(store)
    assert await ResponseLease.claim(store.database, "other", ()) is None
    assert await ResponseLease.claim(store.database, "one", ["resp_1"]) is None
    await lease.release()
    assert (await claim(store, "other")).num_faults == 0


async def test_one_that_was_postponed_waits(store: Store) -> None:
    lease = await queued(store)
    assert await lease.postpone(60, 3)
    assert await ResponseLease.claim(store.database, "one", ()) is None
    async with store.database.writing() as connection:
        await connection.execute(update(RESPONSES).values(lease_until=1.0))
    assert (await claim(store)).num_faults == 1


async def test_what_was_cancelled_or_deleted_is_not_made(store: Store) -> None:
    lease = await queued(store)
    assert (await store.responses.cancel("resp_1")).status is ResponseStatus.CANCELLED
    with pytest.raises(LeaseLost):
        await lease.save([])
    assert await ResponseLease.claim(store.database, "one", ()) is None
    lease = await queued(store, "resp_2")
    await lease.save([b"a"])
    await store.responses.delete("resp_2")
    with pytest.raises(LeaseLost):
        await lease.save([b"b"])
    async with store.database.reading() as connection:
        assert (await connection.execute(RESPONSE_EVENTS.select())).all() == []


async def test_events_are_small(store: Store) -> None:
    lease = await queued(store)
    await lease.save([b'{"type":"response.output_text.delta","delta":"a"}'] * 1000)
    async with store.database.reading() as connection:
        [content] = (await connection.execute(RESPONSE_EVENTS.select())).all()
    assert len(content.content) < 1000
    assert zlib.decompress(content.content).count(b"\n") == 999
