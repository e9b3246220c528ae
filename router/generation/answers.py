"""The one way from what is asked to the answers' events, for routes that stream and routes that don't."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Self

from penstock.router.engine.request import Request
from penstock.router.engine.stream import Ending, Event, PromptLogprobs, Queue, Stream
from penstock.router.errors import Dropped, RouterError
from penstock.router.generation.service import Service
from penstock.router.generation.validation import Asked, check_mode, validate
from penstock.router.metrics.metrics import Metrics
from penstock.router.tracing import request_trace as traces


@dataclass(frozen=True, slots=True)
class Times:
    """Where the time of an answered request went, in seconds."""

    total: float
    validation: float
    queue: float
    inference: float


class Answer:
    """One of the answers to a request. `ending` and `times` are set once its last event has come.

    `index` counts the answers of all prompts: those to the first prompt, then those to the second.
    """

    def __init__(self, index: int, request: Request, stream: Stream, received_at: float, metrics: Metrics) -> None:
        self.index = index
        self.request = request
        self.ending: Ending | None = None
        self._stream = stream
        self._received_at = received_at
        self._metrics = metrics
        self._last_at: float | None = None

    def note(self, event: Event) -> None:
        """Its next event has come."""
        now = time.monotonic()
        if self._last_at is None:
            self._metrics.first_token(now - self._received_at)
        else:
            self._metrics.next_token(now - self._last_at)
        self._last_at = now
        self.ending = event.ending
        if event.ending is not None:
            times = self.times
            self._metrics.ended(
                times.total, times.validation, times.queue, times.inference, event.ending.num_tokens)

    @property
    def seed(self) -> int | None:
        """What the answer can be repeated with; None if nothing was drawn."""
        return self.request.sampling.seed if self.request.sampling.do_sample else None

    @property
    def hit_tokens(self) -> int:
        """Of the prompt, found in the prefix cache when the request first ran."""
        return self._stream.hit_tokens

    @property
    def prompt_logprobs(self) -> PromptLogprobs:
        """Whole once the first event has come, if they were asked for."""
        return self._stream.prompt_logprobs

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


class Answers:
    """Async iterator of the events of all answers to a request, as they come, each with its answer.

    `each` has the answers in the order of their indices. An answer that fails ends the iteration with its error.
    """

    def __init__(self, answers: dict[Stream, Answer], queue: Queue, metrics: Metrics) -> None:
        self.each = tuple(answers.values())
        self._answers = answers
        self._queue = queue
        self._metrics = metrics
        self._num_left = len(answers)

    @property
    def is_over(self) -> bool:
        """Whether every answer has ended."""
        return not self._num_left

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Answer, Event]:
        if not self._num_left:
            raise StopAsyncIteration
        stream, item = await self._queue.get()
        event = stream.take(item)
        answer = self._answers[stream]
        answer.note(event)
        if event.ending is not None:
            self._num_left -= 1
            if self.is_over:
                self._metrics.succeeded()
        return answer, event


@asynccontextmanager
async def answering(service: Service, prompts: Sequence[Asked], is_stream: bool) -> AsyncIterator[Answers]:
    """Permits, validation, submission, in TGI's order; leaving cancels what still runs, and counts.

    Every RouterError passes through here, once.
    """
    received_at = time.monotonic()
    engine = service.engines.choose()
    metrics = service.metrics
    metrics.requested()
    running: Answers | None = None
    traced = traces.current()
    trace = traced.begin(prompts, is_stream) if traced else None
    try:
        for asked in prompts:
            check_mode(asked, service.limits, is_stream)
        async with AsyncExitStack() as stack:
            stack.enter_context(engine.permit(sum(asked.num_answers for asked in prompts)))
            valid = await asyncio.gather(
                *(validate(asked, service.limits, service.tokenizer, engine.facts, service.grammars)
                  for asked in prompts))
            queue: Queue = asyncio.Queue()
            answers: dict[Stream, Answer] = {}
            for request in (request for requests in valid for request in requests):
                metrics.accepted(len(request.input_ids), request.max_new_tokens)
                stream = await stack.enter_async_context(
                    engine.submit(trace.followed(request) if trace else request, queue=queue))
                answers[stream] = Answer(len(answers), request, stream, received_at, metrics)
            if trace is not None:
                trace.submitted(answers)
            running = Answers(answers, queue, metrics)
            yield running
    except RouterError as error:
        _fail(error, metrics, trace)
        raise
    except (asyncio.CancelledError, GeneratorExit):
        if running is None or not running.is_over:
            _fail(Dropped(), metrics, trace)
        raise


def _fail(error: RouterError, metrics: Metrics, trace: traces.Generation | None) -> None:
    metrics.failed(error)
    if trace is not None:
        trace.failed(error)
