"""The record of a request while it is answered, by whichever API it came; its line in the log and its spans are made of
it."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol

from penstock.contract.facts import Facts
from penstock.router.engine.pooled_stream import PooledStream
from penstock.router.engine.request import Request
from penstock.router.engine.stream import Stream
from penstock.router.engine.trace import Trace
from penstock.router.errors import RouterError
from penstock.router.foreign.attempt import Attempt
from penstock.router.grants import NOTHING, Grants
from penstock.router.limits import Limits
from penstock.router.rates import Use

AnyStream = Stream | PooledStream


class AnySpec(Protocol):
    """A client's request for one prompt or one text, as the log tells of it."""

    @property
    def adapter(self) -> str | None: ...

    @property
    def num_answers(self) -> int: ...


class DoneStep:
    """A step of a pipeline that a request has asked. Times are of `time.monotonic`."""

    def __init__(self, pipeline: str, name: str, kind: str) -> None:
        self.pipeline = pipeline
        self.name = name
        self.kind = kind
        self.began_at = self.ended_at = time.monotonic()
        self.error: RouterError | None = None


class RequestRecord:
    """The record of one request to `route`, such as `POST /generate`, or the full name of a gRPC call.

    `operation` is the name that the semantic conventions for generative AI have for what is asked, `model` the one that
    was asked for, `key` the name of the key that its client bears, if it needs one, and `owner` a digest of that key;
    None if it needs none, or comes from the server itself; `grants` tell what that key grants, and it `is_admitted`
    once it is known that there is something left of its budget. `cache_control` is the client's header of this name,
    and `cache` says whether the answers were kept from before, if they may be. The `body` of HTTP is there if the
    record `keeps_body`. `at` is when the request came, in seconds since 1970. `findings` are those of checks, each with
    the index of the answer and the name of the check. `context` names the request's span as in `Trace`, if it is
    traced. `answer_id` is the id that the client knows the answers by. There is one of `generations`, or for some
    routes several, or none if the request got not so far, or went to servers elsewhere by `attempts`; `steps` are those
    of pipelines. `waits` are the seconds for which it waited before the engine had it, by what for. `error` is the
    first thing that went wrong. Times are of `time.monotonic`.
    """

    def __init__(self, route: str) -> None:
        self.route = route
        self.received_at = time.monotonic()
        self.at = time.time()
        self.operation = "text_completion"
        self.model: str | None = None
        self.key: str | None = None
        self.owner: bytes | None = None
        self.grants: Grants = NOTHING
        self.cache_control = ""
        self.cache = ""
        self.is_admitted = False
        self.keeps_body = False
        self.body: bytes | None = None
        self.findings: list[tuple[int, str, str]] = []
        self.context = b""
        self.answer_id: str | None = None
        self.generations: list[Generation] = []
        self.attempts: list[Attempt] = []
        self.steps: list[DoneStep] = []
        self.waits: dict[str, float] = {}
        self.ended_at: float | None = None
        self.error: RouterError | None = None

    @property
    def streams(self) -> list[AnyStream]:
        """The streams of all answers, in the order of their indices."""
        return [stream for generation in self.generations for stream in generation.streams]

    @property
    def tries(self) -> list[AnyStream]:
        """The streams of all answers, and those in whose place others were made."""
        return [stream for generation in self.generations for stream in generation.tries]

    @property
    def first_streams(self) -> list[AnyStream]:
        """The first stream of the first answer to each prompt."""
        return [stream for generation in self.generations for stream in generation.first_streams]

    def begin(self, specs: Sequence[AnySpec], is_stream: bool) -> "Generation":
        """Notes that answers are asked for, and returns what is remembered of them."""
        generation = Generation(self.context, specs, is_stream)
        self.generations.append(generation)
        return generation

    def use(self, num_requests: int, num_tokens: int) -> Use:
        """Returns the use of so much by the tenant whose key it bears."""
        return Use(self.key or "", self.grants.rate, self.grants.tokens, num_requests, num_tokens)

    async def billed(self) -> None:
        """Waits until it is known what the request has used, which another process tells a moment after its end."""
        while billings := [stream.billing for stream in self.tries if stream.billing is not None]:
            await asyncio.wait(billings)

    def failed(self, error: RouterError) -> None:
        """Notes the first error of the request."""
        if self.error is None:
            self.error = error


class Journal(Protocol):
    """Keeps the records of requests that have ended, somewhere, for others to read."""

    keeps_texts: bool
    """Whether it keeps the bodies of requests."""

    def write(self, record: RequestRecord, status: int, path: str | None = None) -> None:
        """Takes the record of a request that was answered with `status`; `path` is given where there is no such
        route."""

    async def close(self) -> None:
        """Keeps those that it has taken."""


class Generation:
    """The record of a call of `answering`. `answer` names the answers, by which they can be repeated, `model` the model
    that makes them, of this `revision` if it has any, `facts` those of the group that does, and `limits` those of its
    requests. `streams` has those of the answers, and `tries` all that there were, also those in whose place others were
    made. Times are of `time.monotonic`."""

    def __init__(self, context: bytes, specs: Sequence[AnySpec], is_stream: bool) -> None:
        self.specs = specs
        self.is_stream = is_stream
        self.answer = self.model = ""
        self.revision: str | None = None
        self.facts: Facts | None = None
        self.limits: Limits | None = None
        self.received_at = time.monotonic()
        self.checked_at: float | None = None
        self.streams: tuple[AnyStream, ...] = ()
        self.tries: list[AnyStream] = []
        self._context = context

    @property
    def first_streams(self) -> list[AnyStream]:
        """The first stream of the first answer to each prompt."""
        firsts, index = [], 0
        for spec in self.specs if self.tries else ():
            firsts.append(self.tries[index])
            index += spec.num_answers
        return firsts

    def followed(self, request: Request) -> Request:
        """Returns the request, with a trace in which the engine notes what happens to it if it is traced."""
        self.checked_at = self.checked_at or time.monotonic()
        return replace(request, trace=Trace(self._context)) if self._context else request

    def submitted(self, streams: Iterable[AnyStream]) -> None:
        """Notes that the engine has taken the requests for all answers."""
        before = self.streams
        self.streams = tuple(streams)
        self.tries += [stream for stream in self.streams if stream not in before]

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


@contextmanager
def waiting(cause: str) -> Iterator[None]:
    """Counts the time of the block as waiting for something that the engine does not know of."""
    began_at = time.monotonic()
    try:
        yield
    finally:
        waits = current().waits
        waits[cause] = waits.get(cause, 0.0) + time.monotonic() - began_at


def describe(operation: str, model: str | None) -> None:
    """Sets the operation, which is `text_completion` otherwise, and the model that the request names."""
    record = current()
    record.operation, record.model = operation, model


def name_answer(answer_id: str) -> None:
    """Sets the id by which the client knows the answers, unless it has been told of one before."""
    record = current()
    record.answer_id = record.answer_id or answer_id
