"""Files of the store: written in parts, read, listed, deleted, and swept away."""

import asyncio
import time
from contextlib import suppress

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.router.store import batches as batches_module
from penstock.router.store import files as files_module
from penstock.router.store.errors import Conflict, NotStored, StoreUnavailable
from penstock.router.store.records import PART_BYTES, StoredFile
from penstock.router.store.store import Store
from penstock.router.store.tables import FILES, PARTS


async def write(store: Store, content: bytes = b"content", name: str = "a", purpose: str = "batch",
                seconds: int | None = None) -> StoredFile:
    async with store.files.writing() as writer:
        for begin in range(0, len(content), 300_000):
            await writer.write(content[begin:begin + 300_000])
        return await writer.finish(name, purpose, seconds)


async def read(store: Store, id: str) -> bytes:
    content, number = b"", 0
    while (part := await store.files.part(id, number)) is not None:
        assert len(part) <= PART_BYTES
        content, number = content + part, number + 1
    return content


async def num_rows(store: Store) -> tuple[int, int]:
    async with store.database.reading() as connection:
        [files] = (await connection.execute(select(func.count()).select_from(FILES))).scalars()
        [parts] = (await connection.execute(select(func.count()).select_from(PARTS))).scalars()
    return files, parts


@pytest.mark.parametrize("length", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES - 1])
async def test_a_file_is_read_as_it_was_written(store: Store, length: int) -> None:
    content = bytes(number % 251 for number in range(length))
    stored = await write(store, content, "näme")
    assert stored == StoredFile(stored.id, stored.created_at, None, "näme", "batch", length)
    assert stored.id.startswith("file-")
    assert await store.files.get(stored.id) == stored
    assert await read(store, stored.id) == content


async def test_nothing_is_left_of_a_file_that_was_not_finished(store: Store) -> None:
    with suppress(ZeroDivisionError):
        async with store.files.writing() as writer:
            await writer.write(b"x" * (PART_BYTES + 5))
            assert await num_rows(store) == (1, 1)
            assert await store.files.page(None, 10, None, True) == ([], False)
            with pytest.raises(NotStored):
                await store.files.get(writer.id)
            raise ZeroDivisionError
    assert await num_rows(store) == (0, 0)


async def test_pages(store: Store) -> None:
    stored = [await write(store, name=str(number), purpose="batch" if number % 2 else "user_data")
              for number in range(5)]
    assert await store.files.page(None, 5, None, True) == (stored, False)
    assert await store.files.page(None, 2, None, True) == (stored[:2], True)
    assert await store.files.page(None, 2, stored[1].id, True) == (stored[2:4], True)
    assert await store.files.page(None, 2, stored[3].id, True) == (stored[4:], False)
    assert await store.files.page(None, 3, stored[3].id, False) == (stored[2::-1], False)
    assert await store.files.page("batch", 10, None, False) == ([stored[3], stored[1]], False)
    with pytest.raises(NotStored, match="There is no file `none`"):
        await store.files.page(None, 2, "none", True)


async def test_a_file_is_deleted_unless_a_batch_reads_it(store: Store) -> None:
    stored = await write(store)
    batch = await store.batches.add("/v1/completions", stored.id, "24h", 86400, None, None)
    with pytest.raises(Conflict, match=f"is the input of the batch `{batch.id}`, which is validating: cancel that"):
        await store.files.delete(stored.id)
    other = await write(store)
    await store.files.delete(other.id)
    assert await num_rows(store) == (1, 1)
    for id in (other.id, "none"):
        with pytest.raises(NotStored):
            await store.files.delete(id)


async def test_a_file_is_not_deleted_while_a_batch_is_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, deletions = await write(store), list[asyncio.Task[None]]()

    async def keep(connection: AsyncConnection, id: str, param: str) -> None:
        await files_module.keep(connection, id, param)
        deletions.append(asyncio.create_task(store.files.delete(id)))
        await asyncio.sleep(0.05)  # in which it would be done, if it did not wait

    monkeypatch.setattr(batches_module, "keep", keep)
    await store.batches.add("/v1/completions", stored.id, "24h", 86400, None, None)
    with pytest.raises(Conflict, match="is the input of the batch"):
        await deletions[0]
    with pytest.raises(NotStored) as caught:
        await store.batches.add("/v1/completions", "none", "24h", 86400, None, None)
    assert caught.value.param == "input_file_id"


async def test_a_file_of_many_parts_is_deleted_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone at once, and what can't be deleted then is swept away."""
    monkeypatch.setattr(files_module, "SWEPT_PARTS", 2)
    one, other = [await write(store, b"x" * (4 * PART_BYTES)) for _ in range(2)]
    await store.files.delete(one.id)
    assert await num_rows(store) == (1, 4)

    async def drop_parts(id: str) -> bool:
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(store.files, "_drop_parts", drop_parts)
        await store.files.delete(other.id)
    with pytest.raises(NotStored):
        await store.files.get(other.id)
    assert await num_rows(store) == (1, 4)
    await store.files.sweep()
    assert await num_rows(store) == (0, 0)


async def test_a_file_is_kept_of_whose_end_nobody_heard(store: Store) -> None:
    """As where the connection breaks while a transaction is committed."""
    async with store.files.writing() as writer:
        stored = await writer.finish("a", "batch", None)
        writer.is_finished = False
    assert await store.files.get(stored.id) == stored


async def test_a_file_of_which_nothing_was_written_costs_no_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store.database, "writing", None)
        async with store.files.writing() as writer:
            await writer.write(b"few bytes")


async def test_a_file_that_was_swept_away_while_it_was_written_is_not_there(store: Store) -> None:
    async with store.files.writing() as writer:
        await writer.write(b"x" * PART_BYTES)
        await store.files._drop(writer.id)
        with pytest.raises(StoreUnavailable):
            await writer.finish("a", "batch", None)
    assert await num_rows(store) == (0, 0)


async def test_files_expire(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lasting, read_by_batch, expiring = [await write(store, seconds=seconds) for seconds in (None, 3600, 3600)]
    await store.batches.add("/v1/completions", read_by_batch.id, "24h", 86400, None, None)
    assert expiring.expires_at == expiring.created_at + 3600
    now = time.time() + 3601
    monkeypatch.setattr(files_module.time, "time", lambda: now)
    with pytest.raises(NotStored):
        await store.files.get(expiring.id)
    assert await store.files.page(None, 10, None, True) == ([lasting], False)
    assert (await num_rows(store))[0] == 3
    await store.files.sweep()
    assert (await num_rows(store))[0] == 2
    assert await read(store, read_by_batch.id) == b"content"


async def test_what_a_dead_router_wrote_is_swept_away(store: Store) -> None:
    await write(store)
    async with store.files.writing() as writer:
        await writer.write(b"x" * PART_BYTES)
        await store.files.sweep()
        assert await num_rows(store) == (2, 2)
        old = int((time.time() - files_module.ORPHAN_SECONDS - 1) * 1e6)
        async with store.database.writing() as connection:
            await connection.execute(update(FILES).values(created_at=old))
        await store.files.sweep()
        assert await num_rows(store) == (1, 1)
