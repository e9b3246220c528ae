"""Spans of requests, by OpenTelemetry's semantic conventions for HTTP, for RPC and for generative AI.

A request's spans are made when it ends, of the times and notes that it gathered: while tokens flow nothing is done for
them. Only where an endpoint is set is this imported.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from penstock.router.engine.trace import Note, Trace
from penstock.router.errors import Dropped, GenerationError, RouterError
from penstock.router.generation import request_record
from penstock.router.generation.request_record import AnyStream, RequestRecord
from penstock.router.journal.redaction import Redaction
from penstock.router.request_id import current as current_request
from penstock.router.routing import route_of
from penstock.router.tracing.generative_ai import DETAILS, answered, asked, details

Attributes = Mapping[str, AttributeValue]
_FAILURES = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""The codes that make the span of a gRPC server an error, by OpenTelemetry's conventions."""


class Tracing:
    """Makes spans of requests to `model_id`; `provider` samples and exports them. With a `redaction` they have events
    with the texts of prompts and answers, which are redacted."""

    def __init__(self, provider: TracerProvider, model_id: str, redaction: Redaction | None = None) -> None:
        self._tracer = provider.get_tracer("penstock.router")
        self._propagator = TraceContextTextMapPropagator()
        self._model_id = model_id
        self._redaction = redaction

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Makes the server span of every POST. Other methods, such as those of probes, have none."""
        if request.method != "POST":
            return await handler(request)
        route = route_of(request)
        attributes = {
            "http.request.method": request.method, "http.route": route or None, "url.path": request.path,
            "url.scheme": request.scheme, "server.address": request.url.host, "server.port": request.url.port,
            "client.address": request.remote,
            "user_agent.original": request.headers.get("user-agent"),
            "network.protocol.version": f"{request.version.major}.{request.version.minor}",
        }
        with self.request(f"{request.method} {route}".strip(), request.headers, attributes) as span:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = error
            _set_status(span, response.status)
        if isinstance(response, web.HTTPException):
            raise response
        return response

    @contextmanager
    def call(self, method: str, metadata: Mapping[str, str], peer: str) -> Iterator[Callable[[str], None]]:
        """Makes the server span of a gRPC call; what is yielded takes the name of the code that the call ends with.

        `method`: the full name. `peer`: gRPC's, such as `ipv4:127.0.0.1:5000`.
        """
        kind, _, address = peer.partition(":")
        attributes = {
            "rpc.system.name": "grpc", "rpc.method": method,
            "client.address": unquote(address.rpartition(":")[0]).strip("[]") if kind.startswith("ip") else None,
            "user_agent.original": metadata.get("user-agent"),
        }
        with self.request(method, metadata, attributes) as span:
            yield lambda code: _set_code(span, code)

    @contextmanager
    def request(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, AttributeValue | None]
    ) -> Iterator[Span]:
        """Makes the server span of the block, in the trace that the `traceparent` of `carrier` names, if it names one.

        Spans inside the block become its children, if the trace is sampled. Attributes of None are left out. The
        exception that leaves the block is the request's failure."""
        started_at = _Clock()
        given = _given({"penstock.request.id": current_request(), **attributes})
        span = self._tracer.start_span(name, self._propagator.extract(carrier), SpanKind.SERVER, given)
        record = request_record.current()
        if span.is_recording():
            record.context = _pack(span.get_span_context())
        try:
            yield span
        except BaseException as error:
            _set_failure(span, Dropped.error_type if isinstance(error, asyncio.CancelledError | GeneratorExit)
                         else type(error).__name__, is_ours=isinstance(error, Exception))
            raise
        finally:
            if span.is_recording():
                self._tell(span, record, started_at)
            span.end()

    def _tell(self, span: Span, record: RequestRecord, clock: "_Clock") -> None:
        """Adds to the span what was asked and answered, and makes its children."""
        if record.error is not None:
            _set_failure(span, record.error.error_type, _is_ours(record.error))
        for attempt in record.attempts:
            self._child("source", set_span_in_context(span), clock, attempt.began_at, attempt.ended_at,
                        {"server.address": attempt.source, "penstock.source.outcome": attempt.outcome.value})
        for step in record.steps:
            self._child(f"step {step.name}", set_span_in_context(span), clock, step.began_at, step.ended_at,
                        _given({"penstock.pipeline": step.pipeline, "penstock.step.kind": step.kind,
                                "error.type": None if step.error is None else step.error.error_type}))
        if not record.generations:
            return
        span.set_attributes(_given(asked(record, self._model_id)))
        span.set_attributes(_given(answered(record)))
        if self._redaction is not None:
            span.add_event(DETAILS, _given(details(record, self._redaction)))
        inside, now = set_span_in_context(span), time.monotonic()
        for generation in record.generations:
            self._child("validation", inside, clock, generation.received_at, generation.checked_at or now)
        told: set[Trace | None] = set()  # all answers of a beam search have the same
        for index, stream in enumerate(record.streams):
            trace = stream.request.trace
            notes = trace.notes if trace and trace not in told else []
            self._phases(span, stream, notes, {"penstock.answer.index": index}, clock)
            told.add(trace)

    def _phases(
        self, span: Span, stream: AnyStream, notes: Sequence[Note], attributes: Attributes, clock: "_Clock"
    ) -> None:
        """Makes the spans of queue, prefill and decode, as far as the answer came; what happened on the way, and was
        noted, is events."""
        inside, end = set_span_in_context(span), stream.finished_at or time.monotonic()
        chunks = [note for note in notes if note.name == "prefill_chunk"]
        for note in notes:
            if note.name != "prefill_chunk":
                span.add_event(note.name, {**attributes, **_facts(note)}, clock.ns(note.at))
        first = stream.first_token_at
        self._child("queue", inside, clock, stream.submitted_at, stream.started_at or end, attributes)
        if stream.started_at is not None:
            self._child("prefill", inside, clock, stream.started_at, first or end, attributes,
                        [note for note in chunks if first is None or note.at < first])
        if first is not None:
            self._child("decode", inside, clock, first, end, attributes, [note for note in chunks if note.at >= first])

    def _child(
        self, name: str, inside: Context, clock: "_Clock", start: float, end: float,
        attributes: Attributes | None = None, notes: Iterable[Note] = (),
    ) -> None:
        child = self._tracer.start_span(name, inside, attributes=attributes, start_time=clock.ns(start))
        for note in notes:
            child.add_event(note.name, _facts(note), clock.ns(note.at))
        child.end(clock.ns(end))


class _Clock:
    """Converts times of `time.monotonic` to times of day, by the difference that they had when it was made."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def ns(self, at: float) -> int:
        return int(at * 1e9) + self._offset


def _pack(context: SpanContext) -> bytes:
    return context.trace_id.to_bytes(16) + context.span_id.to_bytes(8)


def _given(attributes: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value is not None}


def _facts(note: Note) -> dict[str, AttributeValue]:
    return {f"penstock.{name}": fact for name, fact in note.facts.items()}


def _set_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        _set_failure(span, str(status), is_ours=True)


def _set_code(span: Span, code: str) -> None:
    span.set_attribute("rpc.response.status_code", code)
    if code in _FAILURES:
        _set_failure(span, code, is_ours=True)


def _set_failure(span: Span, error_type: str, is_ours: bool) -> None:
    """Names the failure's type; a client's mistake does not make the server's span an error."""
    span.set_attribute("error.type", error_type)
    if is_ours:
        span.set_status(StatusCode.ERROR)


def _is_ours(error: RouterError) -> bool:
    return error.status >= 500 or isinstance(error, GenerationError)
