"""Places of answers of each kind, and servers over a scripted fleet that keep theirs there."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock.router.metrics.caches import CacheMetrics
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache.backend import Backend, Bounds
from penstock.router.response_cache.in_database import InDatabase
from penstock.router.response_cache.memory import Memory
from penstock.router.store.database import Database
from tests.fakes import LIMITS
from tests.postgresql import only_with_postgresql
from tests.redis_server import RedisServer, only_with_redis, running_redis
from tests.router.api.conftest import demo, grammars, pytest_asyncio_loop_factories, start

__all__ = ["demo", "grammars", "pytest_asyncio_loop_factories", "start"]

PLACES = ["memory", "sqlite", pytest.param("postgresql", marks=only_with_postgresql),
          pytest.param("redis", marks=only_with_redis)]
MakeBackend = Callable[[Bounds, CacheMetrics], Awaitable[Backend]]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(LIMITS)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def mortal_redis(redis: RedisServer) -> Iterator[RedisServer]:
    """Lets a test end the server, which nobody else uses meanwhile."""
    yield redis
    if not redis.is_running:
        redis.start()


@pytest.fixture(params=PLACES)
async def make_backend(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_folder: Path
) -> AsyncIterator[MakeBackend]:
    databases: list[Database] = []

    async def make(bounds: Bounds, metrics: CacheMetrics) -> Backend:
        if request.param == "memory":
            return Memory(bounds, metrics)
        if request.param == "redis":
            from penstock.router.response_cache.in_redis import InRedis

            return InRedis(request.getfixturevalue("redis").url, bounds)
        if request.param == "sqlite":
            database = Database.in_folder(shutil.copytree(sqlite_folder, tmp_path / "data"))
        else:
            database = Database.at_url(request.getfixturevalue("postgresql_url"))
        databases.append(database)
        await database.prepare()
        async with database.writing() as connection:
            await connection.execute(text("DELETE FROM kept_answers"))
        return InDatabase(database, bounds, metrics)

    yield make
    for database in databases:
        await database.close()
