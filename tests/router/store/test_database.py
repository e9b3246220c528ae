"""The database: its tables, versions, transactions and failures."""

import asyncio
import gc
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import InterfaceError, OperationalError

from penstock.router.store import database as database_module
from penstock.router.store import migrations
from penstock.router.store.database import FILE_NAME, Database
from penstock.router.store.engines import NEEDS_WRITING, StoreError
from penstock.router.store.errors import StoreFull, StoreUnavailable
from penstock.router.store.store import Store
from penstock.router.store.tables import METADATA
from tests.postgresql import PostgreSQL, only_with_postgresql


async def test_the_migrations_make_the_tables(database: Database) -> None:
    async with database.reading() as connection:
        assert await connection.run_sync(
            lambda connection: compare_metadata(MigrationContext.configure(connection), METADATA)) == []


def of_version(connection: Connection, version: str) -> None:
    """Makes the tables that an older version of the server has made."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, version)


async def test_an_older_schema_is_brought_to_this_version(tmp_path: Path) -> None:
    """With what is in it."""
    database = Database.in_folder(tmp_path)
    async with database._begun(NEEDS_WRITING) as connection:
        await connection.run_sync(of_version, "0001")
        await connection.execute(text(
            "INSERT INTO batches (id, created_at, endpoint, input_file_id, completion_window, status, expires_at, "
            "total, completed, failed, input_tokens, cached_tokens, output_tokens, lease_faults) "
            "VALUES ('batch_1', 1, '/v1/completions', 'file-1', '24h', 'completed', 2, 1, 1, 0, 5, 0, 7, 0)"))
    await database.prepare()
    batch = await Store(database).batches.get("batch_1")
    assert (batch.output_tokens, batch.reasoning_tokens) == (7, 0)
    await database.close()


async def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    database = Database.in_folder(tmp_path / "data")
    await database.prepare()
    assert {path.stat().st_mode & 0o077 for path in [tmp_path / "data", *(tmp_path / "data").iterdir()]} == {0}
    await database.close()


async def test_it_is_prepared_again_and_by_several_at_once(tmp_path: Path) -> None:
    databases = [Database.in_folder(tmp_path) for _ in range(4)]
    await asyncio.gather(*(each.prepare() for each in databases))
    for each in databases:
        await each.prepare()
        assert await Store(each).batches.page(10, None) == ([], False)
        await each.close()


@only_with_postgresql
async def test_several_routers_prepare_a_database_at_once(postgresql: PostgreSQL) -> None:
    url = postgresql.new_database()
    databases = [Database.at_url(url) for _ in range(4)]
    await asyncio.gather(*(each.prepare() for each in databases))
    for each in databases:
        assert await Store(each).batches.page(10, None) == ([], False)
        await each.close()


async def set_version(database: Database, version: str) -> None:
    async with database.writing() as connection:
        await connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))


async def test_a_newer_schema_is_refused(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    await set_version(database, "9999")
    database._is_ready = False
    with pytest.raises(StoreError, match="has the schema 9999 of a newer version of this server, which knows those up "
                                         "to 0005: run the newer version, or name another database"):
        await database.prepare()
    with pytest.raises(StoreUnavailable, match="the store of files, batches and responses can't be used now"):
        await Store(database).batches.page(10, None)
    assert "has the schema 9999" in caplog.text
    database._is_ready = True
    await set_version(database, "0005")


@pytest.mark.parametrize(("url", "sentence"), [
    ("nonsense", "`database_url` must be a URL such as postgresql://user:password@host/database"),
    ("mysql://a/b", "`database_url` must begin with postgresql://, for SQLite is used by `data_dir`. Given: mysql://"),
    ("postgresql://a/b?sslmode=require&channel_binding=require", "`database_url` may have the parameters "
     "application_name, sslcert, sslkey, sslmode, sslrootcert. Given: channel_binding"),
    ("postgresql://a/b?sslmode=on", "`sslmode` of `database_url` must be one of disable, allow, prefer, require, "
     "verify-ca, verify-full. Given: on"),
    *((f"postgresql://u:p@{host}/d", "`database_url` must have one host, and a port from 1 to 65535 if it has one")
      for host in ("h:abc", "h:99999", "h:0", "h1:5432,h2:5432")),
    ("postgresql://u:p@ss@h/d", "`database_url` must have one @: write those of a password as %40"),
    ("postgresql://h/d?sslmode=require&sslrootcert=/nope/ca.crt",
     "`sslrootcert` of `database_url` must be a file. Given: /nope/ca.crt"),
])
def test_other_urls_are_refused(url: str, sentence: str) -> None:
    with pytest.raises(StoreError) as caught:
        Database.at_url(url)
    assert str(caught.value) == sentence


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    database = Database.in_folder(tmp_path)
    with pytest.raises(StoreError, match="can't be used: file is not a database"):
        await database.prepare()
    await database.close()


@only_with_postgresql
async def test_a_database_that_lets_the_server_not_in(postgresql: PostgreSQL) -> None:
    url = postgresql.new_database()
    for other, sentence in ((url + "_none", 'database "[^"]*_none" does not exist'),
                            (url.replace("penstock:", "nobody:"), 'role "nobody" does not exist')):
        database = Database.at_url(other)
        with pytest.raises(StoreError, match=f"can't be used: {sentence}"):
            await database.prepare()
        await database.close()


@only_with_postgresql
async def test_a_user_who_may_make_no_tables(postgresql: PostgreSQL) -> None:
    """He needs none of his own: those that somebody else has made do, with the rights on them."""
    url = postgresql.new_database()
    owner = await asyncpg.connect(url)
    await owner.execute("CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    guest = Database.at_url(url.replace("penstock:", "guest:"))
    with pytest.raises(StoreError, match="can't be used: permission denied for schema public"):
        await guest.prepare()
    made = Database.at_url(url + "?sslmode=prefer&application_name=penstock")
    await made.prepare()
    await made.close()
    await owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO guest")
    await owner.close()
    await guest.prepare()
    assert await Store(guest).batches.page(10, None) == ([], False)
    await guest.close()


@only_with_postgresql
async def test_an_encrypted_connection_is_insisted_on(
    postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database.at_url(postgresql_url + "?sslmode=require")
    await database.prepare()
    assert "rejected SSL upgrade" in caplog.text
    await database.close()


async def test_a_turn_to_write_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database.in_folder(tmp_path)
    await database.prepare()
    monkeypatch.setattr(database_module, "WAIT_SECONDS", 0.01)
    async with database.writing():
        with pytest.raises(StoreUnavailable):
            async with database.writing():
                pass
    async with database.writing():
        pass
    await database.close()


def test_a_folder_that_cant_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"`data_dir`: .*/penstock\.sqlite3 can't be written: Not a dir"):
        Database.in_folder(tmp_path / "file" / "data")


def test_no_password_is_told() -> None:
    assert "hidden" not in Database.at_url("postgresql://user:hidden@host/base").name


async def test_nothing_is_left_of_a_transaction_that_fails(store: Store) -> None:
    async with store.files.writing() as writer:
        await writer.write(b"x")
        with suppress(ZeroDivisionError):
            async with store.database.writing() as connection:
                await writer.finish_within(connection, "a", "batch", None)
                raise ZeroDivisionError
    assert await store.files.page(None, 10, None, True) == ([], False)


async def test_a_database_that_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database, failures = Database.in_folder(tmp_path), list[None]()
    database.on_failure = lambda: failures.append(None)
    await database.prepare()
    store = Store(database)
    async with database.writing() as connection:
        pages = (await connection.execute(text("PRAGMA page_count"))).scalar_one()
        await connection.execute(text(f"PRAGMA max_page_count = {pages + 4}"))
    async with store.files.writing() as writer:
        with pytest.raises(StoreFull, match="there is no room left in the store of files, batches and responses"):
            await writer.write(b"x" * (1 << 20))
    assert await store.files.page(None, 10, None, True) == ([], False)
    assert failures == [None]
    assert f"{FILE_NAME} is full" in caplog.text
    await database.close()


@only_with_postgresql
async def test_a_database_that_goes_away_and_comes_back(
    mortal_postgresql: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    database, failures = Database.at_url(mortal_postgresql.new_database()), list[None]()
    database.on_failure = lambda: failures.append(None)
    mortal_postgresql.stop()
    await database.prepare()
    store = Store(database)
    with pytest.raises(StoreUnavailable, match="the store of files, batches and responses can't be used now"):
        await store.batches.page(10, None)
    mortal_postgresql.start()
    assert await store.batches.page(10, None) == ([], False)
    mortal_postgresql.stop()
    with pytest.raises(StoreUnavailable):
        await store.batches.page(10, None)
    mortal_postgresql.start()
    assert await store.batches.page(10, None) == ([], False)
    assert failures == [None] * 3
    assert caplog.text.count("can't be used now") == 1  # a minute has not passed
    await database.close()


async def test_a_write_that_is_cancelled_leaves_no_lock(tmp_path: Path) -> None:
    """Also where a statement that returns rows is interrupted, which keeps a closed connection alive."""
    one, other = Database.in_folder(tmp_path), Database.in_folder(tmp_path)
    has_begun, may_end = threading.Event(), threading.Event()

    def hold() -> int:
        has_begun.set()
        assert may_end.wait(30)
        return 1

    @event.listens_for(one._engine.sync_engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.create_function("hold", 0, hold)

    async def write() -> None:
        async with one.writing() as connection:
            await connection.execute(text("INSERT INTO numbers VALUES (hold()) RETURNING number"))

    async with one.writing() as connection:
        await connection.execute(text("CREATE TABLE numbers (number INTEGER)"))
    writing = asyncio.create_task(write())
    await asyncio.to_thread(has_begun.wait, 30)
    writing.cancel()
    may_end.set()
    await asyncio.wait([writing])
    assert writing.cancelled()
    async with asyncio.timeout(5), other.writing() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM numbers"))).scalar_one() == 0
    await one.close()
    await other.close()


async def until_so_few_threads(number: int) -> None:
    """Waits for the threads of connections, which end just after these are closed."""
    async with asyncio.timeout(5):
        while threading.active_count() > number:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", [1, 3, 8, 20])
async def test_reads_that_are_cancelled_twice_end(tmp_path: Path, turns: int) -> None:
    """Those that connect, read, or are ending then: their connections are told to stop while they close."""
    async def read(database: Database) -> None:
        async with database.reading() as connection:
            await connection.execute(text("SELECT 1"))

    threads = threading.active_count()
    database = Database.in_folder(tmp_path)
    await database.prepare()
    reads = [asyncio.create_task(read(database)) for _ in range(3)]
    for _ in range(turns):
        await asyncio.sleep(0.0001)
    for _ in range(2):
        for task in reads:
            task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait(reads)
    await database.close()
    assert {task for task in asyncio.all_tasks() if not task.done()} == {asyncio.current_task()}
    await until_so_few_threads(threads)


async def test_connections_in_use_are_closed_with_the_database(database: Database) -> None:
    async with database._engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
        await database.close()
        with pytest.raises((OperationalError, InterfaceError)):
            await connection.execute(text("SELECT 1"))
    del connection
    gc.collect()  # which warns of connections that are open
