"""Where records are written: none is lost while its place is away, as far as there is room, and no request waits."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from penstock.router.generation.request_record import RequestRecord
from penstock.router.journal import journal
from penstock.router.journal.entry import Written
from penstock.router.journal.form import Form
from penstock.router.journal.in_database import InDatabase
from penstock.router.journal.journal import Journal
from penstock.router.journal.places import InFile, Place
from penstock.router.metrics.metrics import Metrics
from penstock.router.request_id import naming
from penstock.router.store.database import Database
from penstock.router.store.request_log import RequestLog
from penstock.router.store.tables import REQUEST_LOG
from tests.eventually import until
from tests.fakes import LIMITS
from tests.postgresql import PostgreSQL, only_with_postgresql

SECONDS = [0.3, pytest.param(10.0, marks=pytest.mark.slow)]


def record(number: int) -> Written:
    return Written(f"id-{number}", 5.0, "POST /generate", "demo", None, 200, orjson.dumps({"id": f"id-{number}"}))


def outcome(metrics: Metrics, name: str) -> float:
    text = metrics.exposition().decode()
    [line] = [line for line in text.splitlines() if line.startswith(name)]
    return float(line.rsplit(" ", 1)[1])


def written(metrics: Metrics) -> float:
    return outcome(metrics, 'penstock_request_log_records_total{outcome="written"}')


def dropped(metrics: Metrics) -> float:
    return outcome(metrics, 'penstock_request_log_records_total{outcome="dropped"}')


def failures(metrics: Metrics) -> float:
    return outcome(metrics, "penstock_request_log_failures_total")


class Log:
    """A log of made-up requests."""

    def __init__(self, place: Place) -> None:
        self.metrics = Metrics(LIMITS)
        self.journal = Journal(place, Form(), self.metrics.journal)

    def take(self, number: int, body: bytes | None = None) -> None:
        record = RequestRecord("POST /generate")
        record.body = body
        with naming(f"id-{number}"):
            self.journal.write(record, 200)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONGEST", 0.1)
    monkeypatch.setattr(journal, "FAREWELL_SECONDS", 0.5)


async def test_a_file_has_a_line_for_each_record(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    place = InFile(file)
    for numbers in ([1, 2], [3]):
        await place.write([record(number) for number in numbers])
    assert [orjson.loads(line)["id"] for line in file.read_bytes().splitlines()] == ["id-1", "id-2", "id-3"]
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_file_is_moved_aside_before_it_is_too_large(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    place = InFile(file, most=40)
    for number in range(1, 8):
        await place.write([record(number)])
    files = sorted(tmp_path.glob("requests.*.jsonl"))  # noqa: ASYNC240
    assert len(files) == 3
    found = [line for each in (*files, file) for line in each.read_bytes().splitlines()]
    assert [orjson.loads(line)["id"] for line in found] == [f"id-{number}" for number in range(1, 8)]
    assert all(each.stat().st_size <= 40 for each in (*files, file))


async def test_a_file_that_others_move_is_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    place = InFile(file)
    await place.write([record(1)])
    file.rename(tmp_path / "old")
    await place.write([record(2)])
    assert b"id-2" in file.read_bytes()


async def test_a_folder_that_is_away_for_a_while_loses_no_record(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    log = Log(InFile(folder / "requests.jsonl"))
    for number in range(3):
        log.take(number)
    await until(lambda: failures(log.metrics) >= 2)
    folder.mkdir()
    await until(lambda: written(log.metrics) == 3)
    assert (folder / "requests.jsonl").read_bytes().count(b"\n") == 3
    await log.journal.close()
    assert dropped(log.metrics) == 0


class Stuck:
    """A place that takes nothing before it may."""

    def __init__(self) -> None:
        self.may_write = asyncio.Event()
        self.ids: list[str] = []

    async def write(self, records: Sequence[Written]) -> None:
        await self.may_write.wait()
        self.ids += [record.id for record in records]


async def test_records_beyond_the_room_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_WAITING", 5)
    place = Stuck()
    log = Log(place)
    for number in range(8):
        log.take(number)
    assert dropped(log.metrics) == 3
    place.may_write.set()
    await until(lambda: written(log.metrics) == 5)
    log.take(9)
    await log.journal.close()
    assert place.ids == [*(f"id-{number}" for number in range(5)), "id-9"]


async def test_large_bodies_wait_in_no_more_than_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_TOKENS", 100)
    log = Log(Stuck())
    for number in range(4):
        log.take(number, bytes(400))
    assert dropped(log.metrics) == 2
    await log.journal.close()


async def test_the_end_does_not_wait_for_long() -> None:
    log = Log(Stuck())
    log.take(1)
    await log.journal.close()
    assert (written(log.metrics), dropped(log.metrics)) == (0, 1)


async def test_a_record_that_can_not_be_made_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Stuck()
    place.may_write.set()
    log = Log(place)
    whole = Form.written

    def fragile(form: Form, entry: Any) -> Written:
        if entry.id == "id-1":
            raise ValueError("made up")
        return whole(form, entry)

    monkeypatch.setattr(Form, "written", fragile)
    for number in range(3):
        log.take(number)
    await until(lambda: written(log.metrics) == 2)
    assert (place.ids, dropped(log.metrics)) == (["id-0", "id-2"], 1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=only_with_postgresql)])
async def database(request: pytest.FixtureRequest, tmp_path: Path, sqlite_folder: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        database = Database.in_folder(shutil.copytree(sqlite_folder, tmp_path / "data"))
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        database = Database.at_url(server.new_database())
    await database.prepare()
    yield database
    await database.close()


async def rows(database: Database) -> list[Any]:
    async with database.reading() as connection:
        return [*(await connection.execute(select(REQUEST_LOG).order_by(REQUEST_LOG.c.number)))]


async def test_a_database_has_a_row_for_each_record(database: Database) -> None:
    place = InDatabase(RequestLog(database))
    await place.write([])
    await place.write([record(1), record(2)])
    await place.write([record(1)])
    found = await rows(database)
    assert [row.id for row in found] == ["id-1", "id-2", "id-1"]
    assert (found[0].at, found[0].route, found[0].model, found[0].api_key, found[0].status) == (
        5.0, "POST /generate", "demo", None, 200)
    assert orjson.loads(found[1].record) == {"id": "id-2"}


@only_with_postgresql
@pytest.mark.parametrize("seconds", SECONDS)
async def test_postgresql_goes_away(mortal_postgresql: PostgreSQL, seconds: float) -> None:
    database = Database.at_url(mortal_postgresql.new_database())
    await database.prepare()
    log = Log(InDatabase(RequestLog(database)))
    log.take(0)
    await until(lambda: written(log.metrics) == 1)
    mortal_postgresql.stop()
    for number in range(1, 20):
        log.take(number)
    await until(lambda: failures(log.metrics) >= 1)
    await asyncio.sleep(seconds)
    mortal_postgresql.start()
    await until(lambda: written(log.metrics) == 20)
    assert [row.id for row in await rows(database)] == [f"id-{number}" for number in range(20)]
    await log.journal.close()
    await database.close()
    assert dropped(log.metrics) == 0
