"""Batches whose database goes away or is full, and batches of many lines: each line is answered once all the same."""

import asyncio
import gc
import io
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import ProgrammingError

from penstock.router import leased_work
from penstock.router.batches import answers, batch_run, runner
from penstock.router.batches.answers import LineAnswer
from penstock.router.batches.batch_run import BatchRun
from penstock.router.batches.lines import Line
from penstock.router.batches.outputs import Outputs
from penstock.router.batches.runner import BatchRunner
from penstock.router.generation.services import Services
from penstock.router.store.batch_leases import BatchLease
from penstock.router.store.database import Database
from penstock.router.store.errors import StoreUnavailable
from penstock.router.store.files import Files
from tests.eventually import until
from tests.postgresql import PostgreSQL, only_with_postgresql
from tests.router.api.conftest import Start
from tests.router.batches.servers import BatchServer, StartBatches, impatient, line, lines, starting

NUM_LINES = 100


async def check(batches: BatchServer, batch: Any) -> None:
    """Waits for the batch, and checks that each line has one answer."""
    batch = await batches.ended(batch)
    assert (batch.status, batch.request_counts.completed) == ("completed", NUM_LINES)
    found = await batches.lines(batch.output_file_id)
    assert [answer["custom_id"] for answer in found] == [str(number) for number in range(NUM_LINES)]


def num_failures(batches: BatchServer) -> float:
    return batches.server.counted("penstock_store_failures_total")


@only_with_postgresql
@pytest.mark.parametrize("seconds", [0.3, pytest.param(10.0, marks=pytest.mark.slow)])
async def test_the_database_goes_away_amid_a_batch(start: Start, mortal_postgresql: PostgreSQL, seconds: float) -> None:
    url = mortal_postgresql.new_database()
    with impatient():
        async with starting(start, lambda: Database.at_url(url)) as start_batches:
            batches = await start_batches()
            batches.server.fleet.may_answer.clear()
            batch = await batches.until(
                await batches.create(lines(range(NUM_LINES))), lambda batch: batch.status == "in_progress")
            mortal_postgresql.stop()
            batches.server.fleet.may_answer.set()
            await until(lambda: num_failures(batches) >= 3)
            assert await batches.server.generate(max_new_tokens=3)  # whoever needs no store hears nothing of it
            response = await batches.server.client.get("/v1/files")
            assert response.status == 503
            assert response.headers["retry-after"] == "5"
            await asyncio.sleep(seconds)
            mortal_postgresql.start()
            await check(batches, batch)


async def test_the_disk_is_full_amid_a_batch(start: Start, tmp_path: Path) -> None:
    most = 1 << 30

    def bounded() -> Database:
        database = Database.in_folder(tmp_path)

        @event.listens_for(database._engine.sync_engine, "begin", insert=True)
        def bound(connection: Connection) -> None:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")

        return database

    with impatient():
        async with starting(start, bounded) as start_batches:
            batches = await start_batches()
            batches.server.fleet.may_answer.clear()
            batch = await batches.until(
                await batches.create(lines(range(NUM_LINES))), lambda batch: batch.status == "in_progress")
            most = 1  # which means no more than there are now
            batches.server.fleet.may_answer.set()
            await until(lambda: num_failures(batches) >= 3)
            assert await batches.server.generate(max_new_tokens=3)
            form = {"purpose": "batch", "file": io.BytesIO(b"x" * 100_000)}
            response = await batches.server.client.post("/v1/files", data=form)
            assert response.status == 507
            assert (await response.json())["error"]["code"] == "store_full"
            most = 1 << 30
            await check(batches, batch)


async def test_batches_are_looked_for_again_after_a_fault(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the tables are gone for a while."""
    has_failed, claim = asyncio.Event(), BatchLease.claim

    async def claim_of_no_table(database: Database, owner: str, held: Collection[str]) -> BatchLease | None:
        if has_failed.is_set():
            return await claim(database, owner, held)
        has_failed.set()
        raise ProgrammingError("SELECT", None, Exception("no such table: batches"))

    monkeypatch.setattr(BatchLease, "claim", claim_of_no_table)
    await has_failed.wait()
    batch = await batches.ended(await batches.create(lines("a")))
    assert batch.status == "completed"


async def test_a_batch_whose_work_fails_is_behind_others(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_BATCHES", 1)
    run, failed = BatchRun.run, asyncio.Event()

    async def run_with_a_fault(self: BatchRun) -> None:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError
        await run(self)

    monkeypatch.setattr(BatchRun, "run", run_with_a_fault)
    wrong = await batches.create(lines("a"))
    await failed.wait()
    assert (await batches.ended(await batches.create(lines("b")))).status == "completed"
    assert (await batches.client.batches.retrieve(wrong.id)).status == "validating"


@pytest.mark.parametrize("can_write", [True, False])
async def test_a_batch_whose_work_fails_again_and_again(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch, can_write: bool
) -> None:
    """As one whose input somebody has deleted in the database."""
    async def no_parts(files: Files, id: str) -> AsyncIterator[bytes]:
        for part in ():
            yield part

    async def no_end(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(leased_work, "FAULT_SECONDS", 0.0)
    monkeypatch.setattr(batch_run, "parts_of", no_parts)
    if not can_write:
        monkeypatch.setattr(Outputs, "end", no_end)
    batch = await batches.ended(await batches.create(lines("ab")))
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert batch.errors is not None
    [error] = batch.errors.data or ()
    assert error.code == "server_error"
    assert "failed at this batch again and again, by a fault of its own" in str(error.message)
    assert [(each["custom_id"], each["error"]["code"]) for each in await batches.lines(batch.error_file_id)] == [
        (custom_id, "batch_failed") for custom_id in "ab" * can_write]


async def test_a_batch_that_cant_be_postponed_is_not_tried_at_once(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_tries, is_over = 0, asyncio.Event()

    async def run_with_a_fault(self: BatchRun) -> None:
        nonlocal num_tries
        num_tries += 1
        raise ZeroDivisionError

    async def postpone(self: BatchLease, seconds: float, most_faults: int) -> bool:
        is_over.set()
        raise StoreUnavailable

    run = BatchRun.run
    monkeypatch.setattr(BatchRun, "run", run_with_a_fault)
    monkeypatch.setattr(BatchLease, "postpone", postpone)
    await batches.create(lines("a"))
    await is_over.wait()
    monkeypatch.setattr(BatchRun, "run", run)
    assert (await batches.ended(await batches.create(lines("b")))).status == "completed"
    assert num_tries == 1


async def test_a_batch_that_ends_its_routers_is_given_up(start_batches: StartBatches) -> None:
    """Of which nobody can tell a fault any more."""
    idle = await start_batches(has_runner=False)
    batch = await idle.create(lines("a"))
    for _ in range(BatchRunner.max_deaths):
        assert await BatchLease.claim(idle.store.database, "one", ()) is not None
    batch = await (await start_batches("one")).ended(batch)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [error.code for error in batch.errors.data or ()] == ["server_error"]


async def test_a_batch_that_is_over_ends_beside_as_many_as_are_worked_on(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_BATCHES", 1)
    batches.server.fleet.may_answer.clear()
    running = await batches.until(await batches.create(lines("a")), lambda batch: batch.status == "in_progress")
    over = await batches.create(lines("b"))
    await batches.expire(over)
    over = await batches.ended(over)
    assert over.status == "expired"
    batches.server.fleet.may_answer.set()
    assert (await batches.ended(running)).status == "completed"


def resident_bytes() -> int:
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmRSS:") + 1]) * 1024


@pytest.fixture
async def answered_at_once(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BatchServer]:
    """A server whose engine has nothing to do, since what it keeps of requests is not of interest here."""
    async def answer(services: Services, line: Line) -> LineAnswer:
        await asyncio.sleep(0)
        return LineAnswer(line.custom_id, 200, "req_1", {"usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    monkeypatch.setattr(answers, "answer_line", answer)
    with impatient():
        async with starting(start, lambda: Database.in_folder(tmp_path)) as start_batches:
            yield await start_batches()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_many_lines_take_no_more_memory_than_few(answered_at_once: BatchServer) -> None:
    async def most_memory(number: int) -> int:
        """Returns the most memory while a batch of so many lines is answered, beyond that before."""
        content = b"\n".join(line(f"line-{each}", text="x" * 1000) for each in range(number))
        batch = await answered_at_once.create(content)
        del content
        gc.collect()
        before, most = resident_bytes(), 0
        while batch.status not in ("completed", "failed"):
            most = max(most, resident_bytes())
            await asyncio.sleep(0.02)
            batch = await answered_at_once.client.batches.retrieve(batch.id)
        assert batch.request_counts.completed == number
        return most - before

    await most_memory(500)
    few, many = await most_memory(500), await most_memory(50_000)
    print(f"{few / 2**20:.1f} MiB for 500 lines, {many / 2**20:.1f} MiB for 50,000")
    assert many - few < 16 << 20
