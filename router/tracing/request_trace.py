"""What is remembered of a request that is traced, by whichever API it came; the middleware makes its spans."""

import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace

from penstock.router.engine.request import Request
from penstock.router.engine.stream import Stream
from penstock.router.errors import RouterError
from penstock.router.generation.spec import GenerationSpec
from penstock.router.tracing.trace import Trace


class RequestTrace:
    """The trace of one request; `context` is that of the `Trace` of each of its answers.

    `operation` is the name that the semantic conventions for generative AI have for what is asked, `model` the one that
    was asked for. There is one of `generations`, or for some routes several, or none if the request got not so far.
    `error` is the first thing that went wrong.
    """

    def __init__(self, context: bytes) -> None:
        self.context = context
        self.operation = "text_completion"
        self.model: str | None = None
        self.generations: list[Generation] = []
        self.error: RouterError | None = None

    @property
    def streams(self) -> list[Stream]:
        """The streams of all answers, in the order of their indices."""
        return [stream for generation in self.generations for stream in generation.streams]

    def begin(self, specs: Sequence[GenerationSpec], is_stream: bool) -> "Generation":
        """Notes that answers are asked for, and returns what is remembered of them."""
        generation = Generation(self, specs, is_stream)
        self.generations.append(generation)
        return generation

    def failed(self, error: RouterError) -> None:
        """Notes the first error of the request."""
        if self.error is None:
            self.error = error


class Generation:
    """What is remembered of a call of `answering`. Times are of `time.monotonic`."""

    def __init__(self, trace: RequestTrace, specs: Sequence[GenerationSpec], is_stream: bool) -> None:
        self.specs = specs
        self.is_stream = is_stream
        self.received_at = time.monotonic()
        self.checked_at: float | None = None
        self.streams: tuple[Stream, ...] = ()
        self._trace = trace

    def followed(self, request: Request) -> Request:
        """Returns the request with a trace, in which the engine notes what happens to it."""
        self.checked_at = self.checked_at or time.monotonic()
        return replace(request, trace=Trace(self._trace.context))

    def submitted(self, streams: Iterable[Stream]) -> None:
        """Notes that the engine has taken the requests for all answers."""
        self.streams = tuple(streams)

    def failed(self, error: RouterError) -> None:
        """Notes that it was refused, that an answer can't go on, or that nobody waits for the answers any more."""
        self.checked_at = self.checked_at or time.monotonic()
        self._trace.failed(error)


_current: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)


def current() -> RequestTrace | None:
    """Returns the trace of the request that this task answers; None if it is not traced."""
    return _current.get()


def set_current(trace: RequestTrace | None) -> None:
    _current.set(trace)


def describe(operation: str, model: str | None) -> None:
    """Sets the operation, which is `text_completion` otherwise, and the model that the request names."""
    if (trace := _current.get()) is not None:
        trace.operation = operation
        trace.model = model


def failed(error: RouterError) -> None:
    """Notes the error of a request that is refused before answers are asked for."""
    if (trace := _current.get()) is not None:
        trace.failed(error)
