"""The benchmark of what a batch costs, at a server over a scripted fleet."""

import pytest

from penstock.bench.load.measurement import Measurement
from penstock.bench.server.beside_batch import Cost, measure, row
from tests.router.api.conftest import demo, pytest_asyncio_loop_factories, start
from tests.router.batches.conftest import batches, make_database, start_batches
from tests.router.batches.servers import BatchServer
from tests.router.conftest import sqlite_folder

__all__ = ["batches", "demo", "make_database", "pytest_asyncio_loop_factories", "sqlite_folder", "start",
           "start_batches"]


async def test_requests_take_turns_without_and_with_a_batch(
    batches: BatchServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(batches.server.client.make_url("")).rstrip("/")
    pairs = await measure(url, rate=500.0, requests=4, rounds=2, lines=20, prompt_tokens=3, output_tokens=2)
    assert [[len(cost.requests) for cost in pair] for pair in pairs] == [[4, 4]] * 2
    assert all(each.num_tokens == 2 for pair in pairs for cost in pair for each in cost.requests)
    assert all(alone.seconds == 0 < beside.seconds for alone, beside in pairs)
    assert [line[:12] for line in capsys.readouterr().out.splitlines()] == ["round 1: p99", "round 2: p99"]


def test_the_median_of_rounds_is_told() -> None:
    def cost(first: float, pause: float, lines: int = 0, seconds: float = 0.0) -> Cost:
        return Cost([Measurement(10.0, 11.0, (10.0 + first, 10.0 + first + pause))], lines, seconds)

    pairs = [(cost(0.1, 0.02), cost(0.12, 0.02, 8, 2.0)), (cost(0.9, 0.5), cost(0.1, 0.1, 3, 1.0)),
             (cost(0.1, 0.02), cost(0.11, 0.03, 9, 1.0))]
    assert row(99, pairs) == ("p99: first token 100.0 ms alone, 110.0 beside a batch, × 1.10; longest pause 20.0 and "
                              "30.0 ms, × 1.00; 4.0 lines/s")
