"""The benchmark of kept answers, beside a server over a scripted fleet."""

from collections.abc import AsyncIterator

import pytest

from penstock.bench.load.hits import NotKept, hit_times
from penstock.router.generation.around import Around
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache.backend import Bounds
from penstock.router.response_cache.cache import ResponseCache
from penstock.router.response_cache.memory import Memory
from tests.router.api.conftest import Start, starting


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


def around(metrics: Metrics) -> Around:
    bounds = Bounds(1 << 20, 60.0)
    return Around(ResponseCache(Memory(bounds, metrics.cache), bounds, metrics.cache, is_shared=True))


async def test_hits_are_timed(start: Start) -> None:
    server = await start(make_around=around)
    times = await hit_times(str(server.client.make_url("/")), 5, 4)
    assert len(times) == 5
    assert server.series()['penstock_response_cache_requests_total{outcome="hit"}'] == 6


async def test_a_server_that_keeps_nothing_is_told(start: Start) -> None:
    server = await start()
    with pytest.raises(NotKept, match="nothing"):
        await hit_times(str(server.client.make_url("/")), 2, 4)
