"""The check of a batch's input, beside other routers and the batch's time."""

import orjson
import pytest
from sqlalchemy import select, update

from penstock.router.batches import checking
from penstock.router.batches.checking import Checking
from penstock.router.store import leases
from penstock.router.store.batch_leases import BatchLease
from penstock.router.store.files import Files
from penstock.router.store.tables import BATCHES
from tests.fakes import LIMITS
from tests.router.batches.servers import StartBatches, line, lines


async def test_the_lease_is_renewed_though_no_line_is_stored(
    start_batches: StartBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a file of blank lines, which takes long to read."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.0)
    idle = await start_batches(has_runner=False)
    database, renewed = idle.store.database, list[bool]()
    await idle.create(lines("a"))

    async def part(files: Files, id: str, number: int) -> bytes | None:
        async with database.writing() as connection:
            renewed.append((await connection.execute(select(BATCHES.c.lease_until))).scalar_one() > 1)
            await connection.execute(update(BATCHES).values(lease_until=1.0))
        return None if number == 5 else b"\n" * 10 + line("a") * (number == 4)

    monkeypatch.setattr(Files, "part", part)
    lease = await BatchLease.claim(database, "one", ())
    assert lease is not None
    batch = await Checking(idle.store.files, lease, await lease.renew(), LIMITS).run()
    assert batch is not None
    assert batch.total == 1
    assert renewed == [True] * 6


async def test_a_batch_whose_time_is_over_is_not_checked(start_batches: StartBatches) -> None:
    idle = await start_batches(has_runner=False)
    batch = await idle.create(b"wrong")
    await idle.expire(batch)
    batch = await (await start_batches()).ended(batch)
    assert (batch.status, batch.errors, batch.error_file_id) == ("expired", None, None)


async def test_the_lines_ask_for_vectors_of_so_many_texts_at_the_most(
    start_batches: StartBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MAX_TEXTS", 5)
    server = await start_batches()
    asked = [orjson.dumps({"custom_id": str(number), "method": "POST", "url": "/v1/embeddings",
                           "body": {"input": ["a"] * 2}}) for number in range(4)]
    batch = await server.ended(await server.create(b"\n".join(asked), endpoint="/v1/embeddings"))
    assert batch.status == "failed"
    assert batch.errors is not None
    [error] = batch.errors.data or []
    assert (error.code, error.line, error.param) == ("too_many_inputs", 3, "body.input")
    assert error.message == "line 3: the input file must ask for vectors of at most 5 texts. Given: more"
