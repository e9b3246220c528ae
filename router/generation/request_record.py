"""The record of a request while it is answered, by whichever API it came; its line in the log and its spans are made of
it."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from penstock.router.engine.request import Request
from penstock.router.engine.stream import Stream
from penstock.router.engine.trace import Trace
from penstock.router.errors import RouterError
from penstock.router.generation.spec import GenerationSpec


class RequestRecord:
    """The record of one request to `route`, such as `POST /generate`, or the full name of a gRPC call.

    `operation` is the name that the semantic conventions for generative AI have for what is asked, `model` the one that
    was asked for, `key` the name of the key that its client bears, if it needs one. `context` names the request's span
    as in `Trace`, if it is traced. `answer_id` is the id that the client knows the answers by. There is one of
    `generations`, or for some routes several, or none if the request got not so far. `error` is the first thing that
    went wrong. Times are of `time.monotonic`.
    """

    def __init__(self, route: str) -> None:
        self.route = route
        self.received_at = time.monotonic()
        self.operation = "text_completion"
        self.model: str | None = None
        self.key: str | None = None
        self.context = b""
        self.answer_id: str | None = None
        self.generations: list[Generation] = []
        self.error: RouterError | None = None

    @property
    def streams(self) -> list[Stream]:
        """The streams of all answers, in the order of their indices."""
        return [stream for generation in self.generations for stream in generation.streams]

    @property
    def first_streams(self) -> list[Stream]:
        """The stream of the first answer to each prompt."""
        firsts = []
        for generation in self.generations:
            index = 0
            for spec in generation.specs if generation.streams else ():
                firsts.append(generation.streams[index])
                index += spec.num_answers
        return firsts

    def begin(self, specs: Sequence[GenerationSpec], is_stream: bool) -> "Generation":
        """Notes that answers are asked for, and returns what is remembered of them."""
        generation = Generation(self.context, specs, is_stream)
        self.generations.append(generation)
        return generation

    def failed(self, error: RouterError) -> None:
        """Notes the first error of the request."""
        if self.error is None:
            self.error = error


class Generation:
    """The record of a call of `answering`. Times are of `time.monotonic`."""

    def __init__(self, context: bytes, specs: Sequence[GenerationSpec], is_stream: bool) -> None:
        self.specs = specs
        self.is_stream = is_stream
        self.received_at = time.monotonic()
        self.checked_at: float | None = None
        self.streams: tuple[Stream, ...] = ()
        self._context = context

    def followed(self, request: Request) -> Request:
        """Returns the request, with a trace in which the engine notes what happens to it if it is traced."""
        self.checked_at = self.checked_at or time.monotonic()
        return replace(request, trace=Trace(self._context)) if self._context else request

    def submitted(self, streams: Iterable[Stream]) -> None:
        """Notes that the engine has taken the requests for all answers."""
        self.streams = tuple(streams)

    def failed(self) -> None:
        """Notes that it was refused, that an answer can't go on, or that nobody waits for the answers any more."""
        self.checked_at = self.checked_at or time.monotonic()


_current: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)


def current() -> RequestRecord:
    """Returns the record of the request that this task answers; outside of one a record that nobody reads."""
    return _current.get() or RequestRecord("")


@contextmanager
def recording(route: str) -> Iterator[RequestRecord]:
    """Records the work of the block for a request."""
    token = _current.set(record := RequestRecord(route))
    try:
        yield record
    finally:
        _current.reset(token)


def describe(operation: str, model: str | None) -> None:
    """Sets the operation, which is `text_completion` otherwise, and the model that the request names."""
    record = current()
    record.operation, record.model = operation, model


def name_answer(answer_id: str) -> None:
    """Sets the id by which the client knows the answers, unless it has been told of one before."""
    record = current()
    record.answer_id = record.answer_id or answer_id
