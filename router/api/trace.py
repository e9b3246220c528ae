"""What is remembered of a request that is traced, by whichever API it came; `router.tracing` makes its spans."""

import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace

from router.errors import RouterError
from router.request import Request
from router.stream import Stream
from router.trace import Trace
from router.validation import Asked


class RequestTrace:
    """Its `context` is `router.trace.Trace.context`; times are of `time.monotonic`.

    `prompts` are what was asked for, `streams` the answers in the order of their indices. `operation` is the name that
    the semantic conventions for generative AI have for it, `model` the one that was asked for.
    """

    def __init__(self, context: bytes) -> None:
        self.context = context
        self.operation = "text_completion"
        self.model: str | None = None
        self.prompts: Sequence[Asked] = ()
        self.is_stream = False
        self.received_at = time.monotonic()
        self.checked_at: float | None = None
        self.streams: Sequence[Stream] = ()
        self.error: RouterError | None = None

    def asked(self, prompts: Sequence[Asked], is_stream: bool) -> None:
        """It has been read."""
        self.prompts = prompts
        self.is_stream = is_stream
        self.received_at = time.monotonic()

    def followed(self, request: Request) -> Request:
        """One of the requests that it was found to be, for the engine, which notes what happens to it."""
        if self.checked_at is None:
            self.checked_at = time.monotonic()
        return replace(request, trace=Trace(self.context))

    def failed(self, error: RouterError) -> None:
        """It was refused, or ended before its time."""
        if self.checked_at is None:
            self.checked_at = time.monotonic()
        self.error = error


_current: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)


def current() -> RequestTrace | None:
    """That of the request that this task answers; None if it is not traced."""
    return _current.get()


def set_current(trace: RequestTrace | None) -> None:
    _current.set(trace)


def describe(operation: str, model: str | None) -> None:
    """For handlers that know better than `text_completion`: tell what the request is, and the model it names."""
    if (trace := _current.get()) is not None:
        trace.operation = operation
        trace.model = model
