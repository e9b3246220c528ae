"""Places of answers that go away: requests go on without them, and metrics tell of it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy.pool import QueuePool

from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.around import Around
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache import backend
from penstock.router.response_cache.backend import Backend, Bounds, Kept
from penstock.router.response_cache.cache import ResponseCache
from penstock.router.response_cache.in_database import InDatabase
from penstock.router.store.database import Database
from tests.eventually import until
from tests.postgresql import PostgreSQL, only_with_postgresql
from tests.redis_server import RedisServer, only_with_redis
from tests.router.api.conftest import Server, Start
from tests.router.api.resuming import SeededFleet
from tests.router.response_cache.test_answers import BOUNDS, GREEDY, ask

SECONDS = [0.3, pytest.param(10.0, marks=pytest.mark.slow)]


def failures(server: Server) -> float:
    return server.series()["penstock_response_cache_failures_total"]


class Awkward:
    """A place that does not answer, or fails, or gives other bytes than it was given."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None
        self.num_asked = 0
        self.is_damaged = False
        self.kept: dict[bytes, bytes] = {}

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        self.num_asked += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return {key: Kept(b"damaged" if self.is_damaged else self.kept[key], 0.0) for key in keys if key in self.kept}

    async def put(self, contents: Mapping[bytes, bytes]) -> None:
        if self.error is not None:
            raise self.error
        self.kept.update(contents)

    async def close(self) -> None:
        pass


@pytest.fixture
def start_with(start: Start, demo: ChatTemplate, monkeypatch: pytest.MonkeyPatch) -> Callable[[Backend], Any]:
    """Starts a server that keeps its answers there, and looks again soon after a failure."""
    monkeypatch.setattr(backend, "SHORTEST", 0.02)
    monkeypatch.setattr(backend, "LONGEST", 0.1)

    def start_with(place: Backend) -> Any:
        return start(make_fleet=SeededFleet, template=demo, make_around=lambda metrics: around(place, metrics))

    return start_with


def around(place: Backend, metrics: Metrics, bounds: Bounds = BOUNDS) -> Around:
    return Around(ResponseCache(place, bounds, metrics.cache, is_shared=True))


async def until_hit(server: Server) -> None:
    """Asks until the answer is kept."""
    async with asyncio.timeout(20):
        while not str((await ask(server, "/generate", GREEDY))[1]).startswith("hit"):
            await asyncio.sleep(0.01)


async def test_nobody_waits_for_a_place_that_does_not_answer(start_with: Any) -> None:
    place = Awkward()
    server = await start_with(place)
    assert (await ask(server, "/generate", GREEDY))[1] == "miss"
    assert failures(server) == 1
    await asyncio.sleep(0.1)
    for _ in range(3):  # it has not answered yet, so that it is not asked again
        assert (await ask(server, "/generate", GREEDY))[1] == "miss"
    assert (place.num_asked, failures(server)) == (1, 1)
    place.may_answer.set()
    await until_hit(server)


async def test_a_place_that_fails_is_left_alone_for_a_while(start_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "SHORTEST", 60.0)
    place = Awkward()
    place.may_answer.set()
    place.error = OSError("away")
    server = await start_with(place)
    for _ in range(3):
        assert (await ask(server, "/generate", GREEDY))[1] == "miss"
    assert (place.num_asked, failures(server), place.kept) == (1, 1, {})


async def test_bytes_that_are_none_of_ours_are_a_miss(start_with: Any) -> None:
    place = Awkward()
    place.may_answer.set()
    server = await start_with(place)
    await ask(server, "/generate", GREEDY)
    place.is_damaged = True
    assert (await ask(server, "/generate", GREEDY))[1] == "miss"
    assert failures(server) == 1


async def check_absence(
    server: Server, stop: Callable[[], None], restart: Callable[[], None], seconds: float, others: Sequence[str] = ()
) -> None:
    """Ends the place of answers for a while, amid requests that are answered as before, as misses or `others`."""
    await until_hit(server)
    before = await ask(server, "/generate", GREEDY)
    stop()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end or not failures(server):
        body, cache = await ask(server, "/generate", GREEDY)
        assert body == before[0]
        assert cache in ("miss", "shared", *others)
    assert failures(server) <= 5 + 40 * seconds
    restart()
    await until_hit(server)


@only_with_redis
@pytest.mark.parametrize("seconds", SECONDS)
async def test_redis_goes_away(start_with: Any, mortal_redis: RedisServer, seconds: float) -> None:
    from penstock.router.response_cache.in_redis import InRedis

    server = await start_with(InRedis(mortal_redis.url, BOUNDS))
    await check_absence(server, mortal_redis.stop, mortal_redis.start, seconds)


@only_with_postgresql
@pytest.mark.parametrize("seconds", SECONDS)
async def test_postgresql_goes_away(
    start_with: Any, mortal_postgresql: PostgreSQL, metrics: Metrics, seconds: float
) -> None:
    database = Database.at_url(mortal_postgresql.new_database())
    server = await start_with(InDatabase(database, BOUNDS, metrics.cache))
    await check_absence(server, mortal_postgresql.stop, mortal_postgresql.start, seconds)
    await database.close()


@pytest.mark.parametrize("seconds", SECONDS)
async def test_sqlite_goes_away(start_with: Any, metrics: Metrics, tmp_path: Any, seconds: float) -> None:
    """Its folder is moved away; connections that have the file open go on in it."""
    database = Database.in_folder(tmp_path / "data")
    await database.prepare()
    server = await start_with(InDatabase(database, BOUNDS, metrics.cache))
    await until_hit(server)
    folder, gone = tmp_path / "data", tmp_path / "gone"
    closing: list[asyncio.Task[None]] = []

    async def close_idle() -> None:
        """Closes the connections once none is in use, whose read would fail."""
        pool = database._engine.pool
        await until(lambda: isinstance(pool, QueuePool) and not pool.checkedout())
        await database.close()

    def stop() -> None:
        closing.append(asyncio.create_task(close_idle()))
        folder.rename(gone)

    hits = [f"hit; age={age}" for age in range(15)]
    await check_absence(server, stop, lambda: gone.replace(folder) and None, seconds, hits)
    await closing[0]
    await database.close()

