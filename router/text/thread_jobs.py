"""Jobs for threads that do many small pieces of work each, for the way to a thread takes longer than a short text."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

Result = TypeVar("Result")


class _Piece(NamedTuple):
    size: int
    arguments: tuple[Any, ...]
    result: asyncio.Future[Any]


class ThreadJobs(Generic[Result]):
    """Calls `work` in the threads of `executor`. What is asked for in one turn of the event loop is shared among
    `num_jobs`, or more where a job would have pieces of more than `most` altogether."""

    def __init__(self, executor: Executor, work: Callable[..., Result], num_jobs: int, most: int) -> None:
        self._executor, self._work = executor, work
        self._num_jobs, self._most = num_jobs, most
        self._waiting: list[_Piece] = []

    async def run(self, size: int, *arguments: Any) -> Result:
        """Returns what `work` returns, or raises what it raises."""
        loop = asyncio.get_running_loop()
        piece = _Piece(size, arguments, loop.create_future())
        self._waiting.append(piece)
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        result: Result = await piece.result
        return result

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        waiting, self._waiting = self._waiting, []
        for job in self._jobs([piece for piece in waiting if not piece.result.done()]):
            done = loop.run_in_executor(self._executor, self._do, job)
            done.add_done_callback(partial(_settle, job))

    def _jobs(self, pieces: list[_Piece]) -> Iterator[list[_Piece]]:
        share = min(self._most, -(-sum(piece.size for piece in pieces) // self._num_jobs))
        job: list[_Piece] = []
        size = 0
        for piece in pieces:
            if job and size + piece.size > share:
                yield job
                job, size = [], 0
            job.append(piece)
            size += piece.size
        if job:
            yield job

    def _do(self, job: list[_Piece]) -> list[Result | Exception | None]:
        """Returns the results of a job; None for a piece that nobody waits for any more."""
        results: list[Result | Exception | None] = []
        for piece in job:
            try:
                results.append(None if piece.result.cancelled() else self._work(*piece.arguments))
            except Exception as error:
                results.append(error)
        return results


def _settle(job: list[_Piece], done: "asyncio.Future[list[Any]]") -> None:
    if done.cancelled() or done.exception() is not None:
        for piece in job:
            piece.result.cancel()
        return
    for piece, result in zip(job, done.result(), strict=True):
        if piece.result.done():
            continue
        if isinstance(result, Exception):
            piece.result.set_exception(result)
        else:
            piece.result.set_result(result)
