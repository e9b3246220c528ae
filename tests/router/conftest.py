"""The databases that tests of the router share: to start a server of them, or to make the tables, takes its time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.router.store.database import Database
from tests.postgresql import PostgreSQL, running_postgresql


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_url(postgresql: PostgreSQL) -> str:
    """One database for all tests that leave its tables as they are."""
    return postgresql.new_database()


@pytest.fixture
def mortal_postgresql(postgresql: PostgreSQL) -> Iterator[PostgreSQL]:
    """Lets a test end the server, which nobody else uses meanwhile."""
    yield postgresql
    if not postgresql.is_running:
        postgresql.start()


@pytest.fixture(scope="session")
def sqlite_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an empty SQLite database, of which tests take copies."""
    async def make() -> None:
        database = Database.in_folder(folder)
        await database.prepare()
        await database.close()

    folder = tmp_path_factory.mktemp("sqlite")
    asyncio.run(make())
    return folder
