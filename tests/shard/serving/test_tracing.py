"""Spans of steps: which there are, in whose traces, and linked to whom."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.contract import wire
from penstock.contract.initial_state import InitialState
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import TRACE
from penstock.contract.step_result import StepResult
from penstock.protos import shard_pb2
from penstock.shard.serving import tracing
from penstock.shard.serving.checks import check_row
from penstock.shard.serving.tracing import STEPS_A_SPAN, StepTracing

A, B, C = ((number, 100 + number) for number in (1, 2, 3))
"""Ids of a trace and of a span."""


def row(slot: int, of: tuple[int, int] | None = None, is_first: bool = False) -> Row:
    side_inputs = {TRACE: of[0].to_bytes(16, "big") + of[1].to_bytes(8, "big")} if of else {}
    return Row(slot=slot, start=0, from_last_sample=not is_first, token_ids=(5, 6) if is_first else (),
               initial_state=InitialState(Sampling(), 2, side_inputs=side_inputs) if is_first else None)


class Shard:
    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.tracing = StepTracing(provider, rank=1)
        self.tracing.opened()
        self._next = 0

    def run(self, *rows: Row, cleared: tuple[int, ...] = ()) -> ReadableSpan | None:
        """A step; returns its span."""
        self._spans.clear()
        self.tracing.ran(Plan(self._next, rows, cleared), StepResult(self._next, (), 2_000_000, 500_000))
        self._next += 1
        spans = self._spans.get_finished_spans()
        assert len(spans) <= 1
        return spans[0] if spans else None


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Shard:
    """One of whose steps every one has a span."""
    monkeypatch.setattr(tracing, "STEPS_A_SPAN", 1)
    return Shard()


def place(span: ReadableSpan | None) -> tuple[int, int]:
    """The ids of its trace and of its parent."""
    assert span is not None
    assert span.parent is not None
    return span.context.trace_id, span.parent.span_id


def links(span: ReadableSpan | None) -> list[tuple[int, int]]:
    assert span is not None
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_the_span_of_a_step(shard: Shard) -> None:
    span = shard.run(row(3, A, is_first=True))
    assert span is not None
    assert place(span) == A
    assert links(span) == [A]
    assert span.end_time - span.start_time == 2_500_000
    assert dict(span.attributes or {}) == {
        "penstock.rank": 1, "penstock.step": 0, "penstock.rows": 1, "penstock.tokens": 2,
        "penstock.forward_seconds": 0.002, "penstock.sample_seconds": 0.0005,
        "penstock.steps": 1, "penstock.steps_seconds": 0.0025}


def test_few_steps_have_spans() -> None:
    """As of 17 answers of 82 tokens each, which run together: one for each that begins, and one of a hundred."""
    shard = Shard()
    spans = []
    for number in range(17):
        spans.append(shard.run(*(row(slot) for slot in range(number)), row(number, A, is_first=True)))
    spans += [shard.run(*map(row, range(17))) for _ in range(1394)]
    told = [span for span in spans if span is not None]
    assert len(told) == 17 + 1394 // STEPS_A_SPAN
    counts = [(span.attributes or {})["penstock.steps"] for span in told]
    assert counts == [1] * 17 + [STEPS_A_SPAN] * 13
    assert (told[-1].attributes or {})["penstock.steps_seconds"] == pytest.approx(0.25)


def test_a_step_is_linked_to_all_its_requests(shard: Shard) -> None:
    shard.run(row(0, A, is_first=True))
    both = shard.run(row(0), row(1, B, is_first=True))
    assert (place(both), links(both)) == (B, [A, B])
    both = shard.run(row(0), row(1))
    assert (place(both), links(both)) == (A, [A, B])
    alone = shard.run(row(1))
    assert (place(alone), links(alone)) == (B, [B])


def test_answers_of_one_request_are_one_link(shard: Shard) -> None:
    span = shard.run(row(0, A, is_first=True), row(1, A, is_first=True))
    assert links(span) == [A]


def test_steps_of_nobody_who_is_traced(shard: Shard) -> None:
    assert shard.run(row(0, None, is_first=True)) is None
    shard.run(row(1, A, is_first=True))
    assert shard.run(row(0)) is None


def test_slots_that_are_given_up(shard: Shard) -> None:
    shard.run(row(0, A, is_first=True), row(1, B, is_first=True), row(2, C, is_first=True))
    span = shard.run(row(0), row(1, None, is_first=True), row(2, None, is_first=True), cleared=(1,))
    assert links(span) == [A]
    shard.tracing.opened()
    assert shard.run(row(0)) is None


@pytest.mark.parametrize("side_inputs", [{}, {TRACE: bytes(range(24))}])
def test_over_the_wire(side_inputs: dict[str, bytes]) -> None:
    initial_state = InitialState(Sampling(), 1, side_inputs=side_inputs)
    order = wire.encode_plan(Plan(0, (Row(0, 0, (5,), initial_state=initial_state),)))
    read = shard_pb2.Order.FromString(order.SerializeToString())
    received = wire.decode_plan(read.plan, 0, check_row).rows[0].initial_state
    assert received is not None
    assert received.side_inputs == side_inputs


def test_a_trace_of_another_length_is_refused() -> None:
    initial_state = InitialState(Sampling(), 1, side_inputs={TRACE: bytes(23)})
    order = wire.encode_plan(Plan(0, (Row(0, 0, (5,), initial_state=initial_state),)))
    with pytest.raises(ValueError, match=r"initial_state\.side_inputs\['trace'\] has 23 bytes, a trace has 24"):
        wire.decode_plan(order.plan, 0, check_row)
