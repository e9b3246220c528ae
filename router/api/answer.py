"""The one way from a body to an answer's events, for routes that stream and routes that don't."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from router.api.service import Service
from router.errors import RouterError
from router.metrics import Metrics
from router.request import Request
from router.stream import Ending, Event, Stream
from router.validation import Asked, check_mode, validate


@dataclass(frozen=True, slots=True)
class Times:
    """Where the time of an answered request went, in seconds."""

    total: float
    validation: float
    queue: float
    inference: float


class Answer:
    """Async iterator of a valid request's events. `ending` and `times` are set once the last one has come."""

    def __init__(self, request: Request, stream: Stream, received_at: float, metrics: Metrics) -> None:
        self.request = request
        self.ending: Ending | None = None
        self._stream = stream
        self._received_at = received_at
        self._metrics = metrics
        self._last_at: float | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._stream)
        now = time.monotonic()
        if self._last_at is None:
            self._metrics.first_token(now - self._received_at)
        else:
            self._metrics.next_token(now - self._last_at)
        self._last_at = now
        self.ending = event.ending
        return event

    @property
    def seed(self) -> int | None:
        """What the answer can be repeated with; None if nothing was drawn."""
        return self.request.sampling.seed if self.request.sampling.do_sample else None

    @property
    def hit_tokens(self) -> int:
        """Of the prompt, found in the prefix cache when the request first ran."""
        return self._stream.hit_tokens

    @property
    def times(self) -> Times:
        stream = self._stream
        assert stream.started_at is not None
        assert stream.finished_at is not None
        return Times(
            total=stream.finished_at - self._received_at,
            validation=stream.submitted_at - self._received_at,
            queue=stream.started_at - stream.submitted_at,
            inference=stream.finished_at - stream.started_at)


@asynccontextmanager
async def answering(service: Service, asked: Asked, is_stream: bool) -> AsyncIterator[Answer]:
    """Permit, validation, submission, in TGI's order; leaving cancels what still runs, and counts.

    Every RouterError passes through here, once.
    """
    received_at = time.monotonic()
    engine = service.engines.choose()
    metrics = service.metrics
    metrics.requested()
    try:
        check_mode(asked.parameters, service.limits, is_stream)
        with engine.permit():
            request = await validate(asked, service.limits, service.tokenizer, engine.facts.vocab_size)
            metrics.accepted(len(request.input_ids), request.max_new_tokens)
            async with engine.submit(request) as stream:
                answer = Answer(request, stream, received_at, metrics)
                yield answer
    except RouterError as error:
        metrics.failed(error)
        raise
    if answer.ending is not None:
        times = answer.times
        metrics.succeeded(times.total, times.validation, times.queue, times.inference, answer.ending.num_tokens)
