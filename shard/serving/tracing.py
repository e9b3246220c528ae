"""Makes spans of the steps that run sequences of traced requests. It is imported only where an endpoint is set."""

import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from penstock.contract.plan import Plan
from penstock.contract.side_inputs import TRACE
from penstock.contract.step_result import StepResult

STEPS_A_SPAN = 100
"""Of the steps for traced requests with which none of them begins, one in so many has a span."""
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class StepTracing:
    """Makes spans of some steps, and follows which slots have traced sequences. It is told of every step, in order.

    A step has a span if a traced request begins with it, so that every request's trace has a part on every shard, or if
    it is the next of STEPS_A_SPAN; the span says how many steps for traced requests there were since the one before,
    and how long they took together. It is linked to the spans of all requests that the step worked for, and lies in the
    trace of the one that began, or else of the first of its rows.
    """

    def __init__(self, provider: TracerProvider, rank: int) -> None:
        self._tracer = provider.get_tracer("penstock.shard")
        self._rank = rank
        self._traced: dict[int, Link] = {}
        self._num_steps = self._steps_ns = 0

    def opened(self) -> None:
        """Take in that all slots are empty."""
        self._traced.clear()

    def ran(self, step: Plan, result: StepResult) -> None:
        """Make the span of a step that has just ended, if it is to have one."""
        begun = self._follow(step)
        if not self._traced or not any(row.slot in self._traced for row in step.rows):
            return
        self._num_steps += 1
        self._steps_ns += result.forward_ns + result.sample_ns
        if begun or self._num_steps >= STEPS_A_SPAN:
            self._tell(step, result, begun)
            self._num_steps = self._steps_ns = 0

    def _tell(self, step: Plan, result: StepResult, begun: list[Link]) -> None:
        links = [self._traced[row.slot] for row in step.rows if row.slot in self._traced]
        links = list({link.context.span_id: link for link in links}.values())  # answers of one request are one link
        end = time.time_ns()
        parent = NonRecordingSpan((begun or links)[0].context)
        span = self._tracer.start_span(
            "step", set_span_in_context(parent), links=links,
            start_time=end - result.forward_ns - result.sample_ns, attributes={
                "penstock.rank": self._rank,
                "penstock.step": step.step_id,
                "penstock.rows": len(step.rows),
                "penstock.tokens": sum(row.num_inputs for row in step.rows),
                "penstock.forward_seconds": result.forward_ns / 1e9,
                "penstock.sample_seconds": result.sample_ns / 1e9,
                "penstock.steps": self._num_steps,
                "penstock.steps_seconds": self._steps_ns / 1e9,
            })
        span.end(end)

    def _follow(self, step: Plan) -> list[Link]:
        """Take in which slots the step gives up and takes; returns links to the requests that begin with it."""
        begun = []
        for slot in step.cleared_slots:
            self._traced.pop(slot, None)
        for row in step.rows:
            if row.initial_state is None:
                continue
            self._traced.pop(row.slot, None)
            if trace := row.initial_state.side_inputs.get(TRACE):
                self._traced[row.slot] = link = Link(_unpack(trace))
                begun.append(link)
        return begun


def _unpack(trace: bytes) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace[:16]), int.from_bytes(trace[16:]), is_remote=True, trace_flags=_SAMPLED)
