"""A store in each kind of database."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock.router.store.database import Database
from penstock.router.store.store import Store
from tests.postgresql import only_with_postgresql


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=only_with_postgresql)])
async def database(request: pytest.FixtureRequest, tmp_path: Path, sqlite_folder: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        database = Database.in_folder(shutil.copytree(sqlite_folder, tmp_path / "data"))
    else:
        database = Database.at_url(request.getfixturevalue("postgresql_url"))
    await database.prepare()
    if request.param == "postgresql":
        async with database.writing() as connection:
            await connection.execute(text("TRUNCATE files, batches, responses, usage, usage_writers CASCADE"))
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)
