"""Pieces of work that are asked for at once share jobs of threads."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.router.text.thread_jobs import ThreadJobs


class Counting(ThreadPoolExecutor):
    """Counts the jobs that it gets."""

    num_jobs = 0

    def submit(self, *arguments, **named):  # type: ignore[no-untyped-def]
        self.num_jobs += 1
        return super().submit(*arguments, **named)


@pytest.fixture
def threads() -> Iterator[Counting]:
    with Counting(2) as threads:
        yield threads


def doubled(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return 2 * number


async def test_what_is_asked_at_once_is_shared_among_the_threads(threads: Counting) -> None:
    jobs = ThreadJobs(threads, doubled, 2, 1000)
    assert await asyncio.gather(*(jobs.run(10, number) for number in range(50))) == [*range(0, 100, 2)]
    assert threads.num_jobs == 2
    assert await jobs.run(10, 7) == 14
    assert threads.num_jobs == 3


async def test_a_job_has_no_more_than_it_may(threads: Counting) -> None:
    jobs = ThreadJobs(threads, doubled, 2, 100)
    await asyncio.gather(*(jobs.run(40, number) for number in range(10)), jobs.run(500, 1))
    assert threads.num_jobs == 6


async def test_an_error_is_of_its_piece_alone(threads: Counting) -> None:
    jobs = ThreadJobs(threads, doubled, 1, 1000)
    results = await asyncio.gather(*(jobs.run(1, number) for number in (1, -1, 2)), return_exceptions=True)
    assert [results[0], results[2]] == [2, 4]
    assert str(results[1]) == "-1 is negative"


async def test_who_has_left_is_not_waited_for(threads: Counting) -> None:
    may_go = threading.Event()
    jobs = ThreadJobs(threads, lambda number: may_go.wait() and number, 1, 1000)
    left, stays = asyncio.ensure_future(jobs.run(1, 1)), asyncio.ensure_future(jobs.run(1, 2))
    await asyncio.sleep(0)
    left.cancel()
    may_go.set()
    assert await stays == 2
    assert left.cancelled()
