"""A model whose requests servers elsewhere answer."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum

import aiohttp

from penstock.router.errors import Overloaded, WrongTask
from penstock.router.foreign.answer import Answer
from penstock.router.foreign.attempt import Attempt, Outcome
from penstock.router.foreign.errors import SourceFailed, SourceTooSlow
from penstock.router.foreign.source import Source, SourceError
from penstock.router.foreign_settings import Api, ForeignSettings
from penstock.router.metrics.sources import SourceMetrics

_GENERATING = ("/v1/completions", "/v1/chat/completions")
PATHS: Mapping[Api, Sequence[str]] = {
    "openai": (*_GENERATING, "/v1/embeddings", "/v1/rerank", "/v1/responses", "/v1/messages",
               "/v1/messages/count_tokens"),
    "tgi": ("/generate", "/generate_stream", "/", *_GENERATING),
}
"""The routes that the servers of an API may have."""
_FAILURES = {Outcome.REFUSED: "validation", Outcome.OVERLOADED: "overloaded", Outcome.LEFT: "dropped"}
"""The labels of `tgi_request_failure`, by what became of the last attempt; all others are `generation`."""


class State(StrEnum):
    UNASKED = "unasked"
    READY = "ready"
    FAILED = "failed"


class ForeignModel:
    """Asks the servers of a model in their order, until one of them begins to answer."""

    def __init__(self, settings: ForeignSettings, session: aiohttp.ClientSession) -> None:
        self.name = settings.name
        self.settings = settings
        self.metrics = SourceMetrics()
        self._sources = [Source(url, settings, session) for url in settings.urls]
        self._num_running = 0

    @property
    def state(self) -> State:
        """Whether the servers have answered what they were asked last."""
        answered = [source.has_answered for source in self._sources]
        if True in answered:
            return State.READY
        return State.FAILED if None not in answered else State.UNASKED

    @property
    def source(self) -> str:
        """The URL of the server that would be asked now."""
        return self._in_order()[0].url

    @property
    def paths(self) -> Sequence[str]:
        """Those of the routes that the model has."""
        return PATHS[self.settings.api]

    @property
    def refusal(self) -> WrongTask:
        """The error of a request by a route that the model does not have."""
        return WrongTask("is answered by a server elsewhere", [f"POST {path}" for path in self.paths])

    @property
    def is_busy(self) -> bool:
        """Whether half of as many requests as may be are being answered."""
        return 2 * self._num_running >= self.settings.max_concurrent_requests

    @asynccontextmanager
    async def asked(
        self, path: str, body: bytes, headers: Mapping[str, str], attempts: list[Attempt]
    ) -> AsyncIterator[Answer]:
        """Yields the answer of the first server that begins one. The attempts are added to the list. Raises
        SourceFailed, and Overloaded if as many requests as may be are being answered."""
        self.metrics.requested()
        num_before = len(attempts)
        try:
            if self._num_running >= self.settings.max_concurrent_requests:
                raise Overloaded
            self._num_running += 1
            try:
                answer = await self._first_answer(path, body, headers, attempts)
                try:
                    yield answer
                finally:
                    answer.close()
                    self._end(answer.attempt)
            finally:
                self._num_running -= 1
        finally:
            self._count(attempts[-1].outcome if len(attempts) > num_before else Outcome.OVERLOADED)

    async def _first_answer(
        self, path: str, body: bytes, headers: Mapping[str, str], attempts: list[Attempt]
    ) -> Answer:
        failures: list[str] = []
        last: SourceError | None = None
        for source in self._in_order():
            attempts.append(attempt := Attempt(self.name, source.url))
            try:
                return await source.ask(path, body, headers, attempt)
            except SourceError as error:
                attempt.outcome, last = error.outcome, error
                failures.append(f"{source.url}: {error}")
                self._end(attempt)
            except BaseException:
                self._end(attempt)
                raise
        assert last is not None
        if last.answer is not None:
            return last.answer
        kind = SourceTooSlow if last.outcome is Outcome.TIMEOUT else SourceFailed
        raise kind(f"no server of {self.name} has answered: {'; '.join(failures)}")

    def _in_order(self) -> list[Source]:
        return sorted(self._sources, key=lambda source: source.is_skipped)

    def _end(self, attempt: Attempt) -> None:
        """Counts the end of an attempt, once."""
        if attempt.ended_at:
            return
        attempt.ended_at = time.monotonic()
        self.metrics.asked(attempt.source, attempt.outcome, attempt.ended_at - attempt.began_at)
        next(source for source in self._sources if source.url == attempt.source).note(attempt.outcome)

    def _count(self, outcome: Outcome) -> None:
        if outcome is Outcome.ANSWERED:
            self.metrics.succeeded()
        else:
            self.metrics.failed(_FAILURES.get(outcome, "generation"))
