"""Servers over a scripted fleet, as those of the API's tests, with a store."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock.router.store.database import Database
from tests.router.api.conftest import Start, demo, pytest_asyncio_loop_factories, server, start
from tests.router.batches.servers import SQLITE, BatchServer, MakeDatabase, StartBatches, impatient, starting

__all__ = ["demo", "pytest_asyncio_loop_factories", "server", "start"]


@pytest.fixture
async def make_database(request: pytest.FixtureRequest, tmp_path: Path, sqlite_folder: Path) -> MakeDatabase:
    """Opens a database that is empty at first, in a way of its own for each who uses it: SQLite, unless the test is
    marked to be run with PostgreSQL, too."""
    if getattr(request, "param", SQLITE) == SQLITE:
        folder = shutil.copytree(sqlite_folder, tmp_path / "data")
        return lambda: Database.in_folder(folder)
    url: str = request.getfixturevalue("postgresql_url")
    database = Database.at_url(url)
    await database.prepare()
    async with database.writing() as connection:
        await connection.execute(text("TRUNCATE files, batches, responses CASCADE"))
    await database.close()
    return lambda: Database.at_url(url)


@pytest.fixture
async def start_batches(start: Start, make_database: MakeDatabase) -> AsyncIterator[StartBatches]:
    with impatient():
        async with starting(start, make_database) as start_batches:
            yield start_batches


@pytest.fixture
async def batches(start_batches: StartBatches) -> BatchServer:
    return await start_batches()
