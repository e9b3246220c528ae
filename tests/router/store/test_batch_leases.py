"""Batches of the store and their leases: one router works on a batch, and each line is answered once."""

import asyncio

import pytest
from sqlalchemy import select, update

from penstock.router.store import batch_leases, leases
from penstock.router.store import batches as batches_module
from penstock.router.store.batch_leases import BatchLease
from penstock.router.store.errors import Conflict, NotStored
from penstock.router.store.leases import LeaseLost
from penstock.router.store.records import AnsweredLine, BatchStatus, StoredBatch
from penstock.router.store.store import Store
from penstock.router.store.tables import BATCHES, COMPLETED, FAILED, LINES, WAITING


async def add(store: Store, metadata: dict[str, str] | None = None) -> StoredBatch:
    async with store.files.writing() as writer:
        file = await writer.finish("a", "batch", None)
    return await store.batches.add("/v1/completions", file.id, "24h", 86400, metadata, 3600)


async def claim(store: Store, owner: str = "one") -> BatchLease:
    lease = await BatchLease.claim(store.database, owner, ())
    assert lease is not None
    return lease


async def running(store: Store, *custom_ids: str) -> BatchLease:
    """Returns the lease of a batch of these lines, which is in progress."""
    await add(store)
    lease = await claim(store)
    assert await lease.add_lines([*enumerate(custom_ids, 1)]) == []
    await lease.begin(len(custom_ids), "demo")
    return lease


def answered(number: int, has_failed: bool = False) -> AnsweredLine:
    return AnsweredLine(number, b"%d\n" % number, has_failed, 2, 1, 3, 2)


async def test_a_batch_is_made_and_listed(store: Store) -> None:
    batches = [await add(store, {"number": str(number)}) for number in range(3)]
    assert [await store.batches.get(batch.id) for batch in batches] == batches
    assert batches[1].metadata == {"number": "1"}
    assert batches[0].expires_at == batches[0].created_at + 86400
    assert await store.batches.page(2, None) == ([batches[2], batches[1]], True)
    assert await store.batches.page(2, batches[1].id) == ([batches[0]], False)
    assert await store.batches.count() == {**dict.fromkeys(BatchStatus, 0), BatchStatus.VALIDATING: 3}
    for ask in (store.batches.get("none"), store.batches.page(2, "none"), store.batches.cancel("none")):
        with pytest.raises(NotStored, match="There is no batch `none`"):
            await ask


async def test_each_batch_has_one_owner(store: Store) -> None:
    batches = [await add(store) for _ in range(3)]
    claims = (BatchLease.claim(store.database, f"router {number}", ()) for number in range(5))
    assert sorted(lease.id for lease in await asyncio.gather(*claims) if lease) == sorted(batch.id for batch in batches)


async def test_the_owner_of_that_name_takes_its_batches_again(store: Store) -> None:
    batch = await add(store)
    await claim(store, "one")
    assert await BatchLease.claim(store.database, "other", ()) is None
    assert await BatchLease.claim(store.database, "one", [batch.id]) is None
    await claim(store, "one")


async def test_a_lease_that_was_not_renewed_is_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.0)
    lease = await running(store, "a")
    assert (await lease.renew()).status is BatchStatus.IN_PROGRESS  # nobody else wanted it
    other = await claim(store, "other")
    for lost in (lease.renew(), lease.save([answered(1)]), lease.finalise()):
        with pytest.raises(LeaseLost):
            await lost
    assert (await other.renew()).completed == 0


async def test_a_released_lease_is_free(store: Store) -> None:
    lease = await running(store, "a")
    await lease.release()
    assert (await claim(store, "other")).id == lease.id


async def test_a_postponed_batch_is_taken_behind_others(store: Store) -> None:
    lease = await running(store, "a")
    assert await lease.postpone(60, 2)
    other = await add(store)
    assert (await claim(store)).id == other.id
    assert await BatchLease.claim(store.database, "two", ()) is None
    async with store.database.writing() as connection:
        await connection.execute(update(BATCHES).values(lease_until=1.0))
    lease = await claim(store, "two")
    assert not await lease.postpone(60, 2)
    await lease.save([answered(1)])
    assert await lease.postpone(60, 2)  # since an answer has come


async def test_a_lease_that_nobody_has_released_counts_as_a_fault(store: Store) -> None:
    lease = await running(store, "a")
    assert [lease.num_faults, *[(await claim(store)).num_faults for _ in range(2)]] == [0, 1, 2]
    await (await claim(store)).release()
    lease = await claim(store)
    assert lease.num_faults == 3
    await lease.save([answered(1)])
    assert (await claim(store)).num_faults == 1


async def test_batches_that_end_are_taken_alone(store: Store) -> None:
    """Their lines need not be answered."""
    batches = [await add(store) for _ in range(4)]
    assert await BatchLease.claim_ending(store.database, "one", ()) is None
    for batch, values in zip(batches[1:], (
            {"expires_at": 1}, {"status": "cancelling"}, {"status": "finalizing"}), strict=True):
        async with store.database.writing() as connection:
            await connection.execute(update(BATCHES).where(BATCHES.c.id == batch.id).values(values))
    found = list[str]()
    while (lease := await BatchLease.claim_ending(store.database, "one", found)) is not None:
        found.append(lease.id)
    assert found == [batch.id for batch in batches[1:]]


async def test_a_custom_id_is_added_once(store: Store) -> None:
    await add(store)
    lease = await claim(store)
    assert await lease.add_lines([(1, "a"), (2, "b"), (3, "a")]) == [(3, "a", 1)]
    assert await lease.add_lines([(4, "b"), (5, "c")]) == [(4, "b", 2)]
    assert await lease.add_lines([(5, "c")]) == []  # once more, as after a commit of which nobody heard
    await lease.forget_lines()
    assert await lease.add_lines([(1, "c")]) == []


async def test_each_answer_counts_once(store: Store) -> None:
    lease = await running(store, "a", "b", "c")
    await lease.save([answered(1), answered(3, has_failed=True)])
    batch = await lease.save([answered(1), answered(2)])
    assert (batch.total, batch.completed, batch.failed) == (3, 2, 1)
    assert (batch.input_tokens, batch.cached_tokens, batch.output_tokens, batch.reasoning_tokens) == (6, 3, 9, 6)
    assert await lease.answers(COMPLETED, 0, 10) == [(1, "a", b"1\n"), (2, "b", b"2\n")]
    assert await lease.answers(COMPLETED, 1, 10) == [(2, "b", b"2\n")]
    assert await lease.answers(FAILED, 0, 10) == [(3, "c", b"3\n")]
    assert await lease.answers(WAITING, 0, 10) == []


async def test_few_answers_are_read_at_once_if_they_are_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_leases, "ANSWERS_BYTES", 5)
    lease = await running(store, *"abcd")
    await lease.save([AnsweredLine(number, bytes(2 * number), False) for number in (1, 2, 3)])
    assert [number for number, *_ in await lease.answers(COMPLETED, 0, 10)] == [1, 2]
    assert [number for number, *_ in await lease.answers(COMPLETED, 2, 10)] == [3]
    assert [number for number, *_ in await lease.answers(WAITING, 0, 10)] == [4]


async def test_which_lines_have_no_answer(store: Store) -> None:
    lease = await running(store, "a", "b", "c")
    assert await lease.numbers(0, 2) == [1, 2]
    assert await lease.numbers(2, 2) == [3]
    await lease.save([answered(2), answered(3, has_failed=True)])
    assert await lease.numbers(0, 2) == [1]
    assert await lease.numbers(1, 2) == []


async def test_the_end_of_a_batch_has_its_files(store: Store) -> None:
    lease = await running(store, "a", "b")
    await lease.save([answered(1)])
    await lease.finalise()
    async with store.files.writing() as output, store.files.writing() as errors:
        await output.write(b"1\n")
        await errors.write(b"none")
        batch = await lease.end(BatchStatus.COMPLETED, output, errors)
    assert batch.status is BatchStatus.COMPLETED
    assert batch.completed_at
    assert (batch.output_file_id, batch.error_file_id) == (output.id, errors.id)
    file = await store.files.get(output.id)
    assert (file.filename, file.purpose, file.bytes) == (f"{batch.id}_output.jsonl", "batch_output", 2)
    assert file.expires_at == file.created_at + 3600
    with pytest.raises(LeaseLost):
        await lease.renew()
    assert await BatchLease.claim(store.database, "one", ()) is None


async def test_lines_of_batches_that_have_ended_are_swept_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "SWEPT_LINES", 2)
    ended = await running(store, *"abcde")
    await ended.finalise()
    await ended.end(BatchStatus.COMPLETED, None, None)
    goes_on = await running(store, *"xyz")
    await store.batches.sweep()
    async with store.database.reading() as connection:
        found = (await connection.execute(select(LINES.c.batch_id, LINES.c.custom_id))).all()
    assert sorted(found) == [(goes_on.id, custom_id) for custom_id in "xyz"]


async def test_a_batch_fails_for_its_input(store: Store) -> None:
    await add(store)
    lease = await claim(store)
    await lease.add_lines([(1, "a")])
    errors = [{"code": "invalid_json_line", "line": 2, "message": "line 2: …", "param": None}]
    await lease.fail(errors)
    batch = await store.batches.get(lease.id)
    assert (batch.status, batch.errors) == (BatchStatus.FAILED, errors)
    assert batch.failed_at


async def test_a_batch_is_cancelled(store: Store) -> None:
    lease = await running(store, "a")
    batch = await store.batches.cancel(lease.id)
    assert batch.status is BatchStatus.CANCELLING
    assert (await store.batches.cancel(lease.id)).cancelling_at == batch.cancelling_at
    assert (await lease.renew()).status is BatchStatus.CANCELLING
    with pytest.raises(LeaseLost):
        await lease.finalise()
    await lease.end(BatchStatus.CANCELLED, None, None)
    assert (await store.batches.cancel(lease.id)).status is BatchStatus.CANCELLED
    async with store.database.writing() as connection:
        await connection.execute(update(BATCHES).values(status="completed"))
    with pytest.raises(Conflict, match="can't be cancelled any more: it is completed"):
        await store.batches.cancel(lease.id)


async def test_a_batch_on_which_nobody_works_is_cancelled_at_once(store: Store) -> None:
    new, begun = await add(store), await add(store)
    assert (await BatchLease.claim(store.database, "one", [new.id])) is not None
    batch = await store.batches.cancel(new.id)
    assert batch.status is BatchStatus.CANCELLED
    assert batch.cancelling_at == batch.cancelled_at is not None
    assert await store.batches.cancel(new.id) == batch
    assert await BatchLease.claim(store.database, "other", ()) is None
    assert (await store.batches.cancel(begun.id)).status is BatchStatus.CANCELLING
