"""The engine: drives one group of shards, from requests to streams of text.

When the group is lost nothing of a request is: the scheduler lets every sequence wait again, with its output as part
of its input, and the streams go on where they paused once the group is back.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from router.errors import GenerationError, Overloaded, RouterError, Unhealthy
from router.facts import Facts
from router.fleet.errors import FleetError
from router.fleet.fleet import Fleet
from router.fleet.wire import Spaces
from router.limits import Limits
from router.metrics import Metrics
from router.request import Request
from router.scheduling import sequence
from router.scheduling.plan import FinishReason, Plan, Sampled
from router.scheduling.scheduler import MAX_SOLO_DEATHS, Scheduler
from router.stream import Ending, Event, Queue, Stream, Token
from router.text.text_path import TextPath

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.05
"""Pause between two attempts to open a group that answers but does not hold."""
_MAY_CHANGE = ("num_blocks", "step_tokens", "numerics")
"""Facts that may be others when the group is back."""


@dataclass(slots=True)
class _Running:
    """What the engine keeps of a request beside its sequence."""

    stream: Stream
    text: TextPath
    num_tokens: int
    """Generated, the output that the request came with included."""


class Engine:
    """Owns the scheduler and the fleet. Its one task is `run`; handlers call it on the same event loop.

    `start_text` makes a request's text path. Up to `pipeline_depth` steps are in flight: the next is planned and sent
    before the tokens of the one that runs are back. Requests wait `max_downtime` seconds for a group that was lost.
    """

    def __init__(
        self,
        fleet: Fleet,
        facts: Facts,
        limits: Limits,
        metrics: Metrics,
        start_text: Callable[[Request], TextPath],
        pipeline_depth: int = 2,
        max_downtime: float = 120.0,
    ) -> None:
        self.facts = facts
        self._fleet = fleet
        self._metrics = metrics
        self._start_text = start_text
        self._depth = pipeline_depth
        self._max_downtime = max_downtime
        self._downtime: asyncio.TimerHandle | None = None
        self._spaces = Spaces(
            max_slots=limits.max_slots,
            max_step_tokens=limits.max_batch_prefill_tokens,
            max_blocks_per_slot=-(-limits.max_total_tokens // facts.block_size))
        self._scheduler = Scheduler(
            block_size=facts.block_size, num_blocks=facts.num_blocks, max_slots=limits.max_slots,
            max_step_tokens=limits.max_batch_prefill_tokens, eos_token_ids=facts.eos_token_ids)
        self._max_total_tokens = limits.max_total_tokens
        self._num_blocks = facts.num_blocks
        self._permits = limits.max_concurrent_requests
        self._requests: dict[int, _Running] = {}
        self._next_id = 0
        self._in_flight: deque[Plan] = deque()
        self._work = asyncio.Event()
        self.is_healthy = True
        """Whether requests are taken: also while the group is away, for as long as they wait for it."""
        self.has_group = False
        """Whether the group is there."""

    @contextmanager
    def permit(self, number: int = 1) -> Iterator[None]:
        """The right to have so many requests in the router; Overloaded when fewer are left."""
        if number > self._permits:
            raise Overloaded
        self._permits -= number
        try:
            yield
        finally:
            self._permits += number

    def submit(self, request: Request, output_so_far: Sequence[int] = (), queue: Queue | None = None) -> Stream:
        """Start to generate, going on after `output_so_far`; events go into `queue`, if one is given.

        Unhealthy when the group is gone.
        """
        if not self.is_healthy:
            raise Unhealthy
        sequence_id = self._next_id
        self._next_id += 1
        text = self._start_text(request)
        for token_id in output_so_far:
            text.push(token_id)
        stream = Stream(request, cancel=lambda: self._cancel(sequence_id), queue=queue)
        self._requests[sequence_id] = _Running(stream, text, len(output_so_far))
        self._scheduler.add(sequence.Sequence(
            id=sequence_id, tokens=[*request.input_ids, *output_so_far], prompt_length=len(request.input_ids),
            max_length=len(request.input_ids) + request.max_new_tokens, sampling=request.sampling,
            ignore_eos=request.ignore_eos, trace=request.trace.context if request.trace else b""))
        self._work.set()
        return stream

    async def run(self) -> None:
        """Drive the group, and wait for it when it is lost, until cancelled. Raises what is no loss but a fault."""
        try:
            while True:
                try:
                    await self._open()
                    await self._drive()
                except FleetError as error:
                    self._lose(error)
                    await asyncio.sleep(RECONNECT_SECONDS)
        except Exception as error:
            self._fail_all(GenerationError(f"Server error: {error}"))
            raise

    async def _drive(self) -> None:
        """Plan, submit, commit, deliver."""
        while True:
            while len(self._in_flight) < self._depth and (plan := self._plan()):
                self._in_flight.append(plan)
                await self._fleet.submit(plan)
            self._note_occupancy()
            if not self._in_flight:
                await self._work.wait()
                self._work.clear()
                continue
            result = await self._fleet.next_result()
            plan, came_at = self._in_flight.popleft(), time.monotonic()
            confirmed = self._scheduler.commit(result)
            committed_at = time.monotonic()
            for sampled in confirmed:
                self._deliver(sampled)
            self._metrics.step(plan, result, confirmed, committed_at - came_at, time.monotonic() - committed_at)

    def _plan(self) -> Plan | None:
        began_at = time.monotonic()
        plan = self._scheduler.plan()
        if plan is not None:
            now = time.monotonic()
            self._metrics.planned(plan, now - began_at)
            self._note_plan(plan, now)
        return plan

    async def _open(self) -> None:
        """Wait for the group. It may have come back with other memory and numerics; the rest must be as it was."""
        facts = await self._fleet.open(self._spaces)
        if differences := self.facts.differences(facts, besides=_MAY_CHANGE):
            raise RuntimeError(f"the group came back with other facts, {', '.join(differences)}")
        if facts.capacity < self._max_total_tokens:
            raise RuntimeError(f"the group came back with {facts.capacity} KV tokens, a request may have "
                               f"{self._max_total_tokens}")
        if facts.numerics != self.facts.numerics:
            log.warning("the group's numerics changed from %s to %s: answers that were under way may differ from an "
                        "undisturbed run", self.facts.numerics, facts.numerics)
        num_blocks = min(facts.num_blocks, self._num_blocks)
        if num_blocks != self._scheduler.memory.pool.num_blocks:
            self._scheduler.resize(num_blocks)
        self.facts = facts
        self.is_healthy = self.has_group = True
        if self._downtime is not None:
            self._downtime.cancel()
            self._downtime = None
            log.info("the group is back")

    def _lose(self, error: FleetError) -> None:
        """The group is gone: let every sequence wait again, give up those that have killed it."""
        self.has_group = False
        self._note_loss()
        forgotten = self._scheduler.forget_all()
        self._in_flight.clear()
        log.error("the group is lost: %s; %d requests will go on when it is back", error, forgotten.num_replayed)
        self._metrics.replayed(forgotten.num_replayed)
        for sequence_id in forgotten.given_up:
            self._requests.pop(sequence_id).stream.fail(GenerationError(
                f"Server error: {MAX_SOLO_DEATHS} times in a row the shards died while they ran this request alone"))
        if self._downtime is None and self.is_healthy:
            self._metrics.group_restarted()
            self._downtime = asyncio.get_running_loop().call_later(self._max_downtime, self._expire)

    def _expire(self) -> None:
        log.error("the group has been away for %g s: its requests fail", self._max_downtime)
        self.give_up()

    @property
    def stalled_seconds(self) -> float:
        """Placeholder."""
        return 0.0

    def give_up(self) -> None:
        """Fail all requests as Unhealthy, and take no new ones until the group is opened anew."""
        for sequence_id in self._requests:
            self._scheduler.finish(sequence_id, FinishReason.ERROR)
        self._fail_all(Unhealthy())

    def _fail_all(self, error: RouterError) -> None:
        """Tell every request, and take no new ones."""
        self.is_healthy = False
        for running in self._requests.values():
            running.stream.fail(error)
        self._requests.clear()

    def _cancel(self, sequence_id: int) -> None:
        """The client has left."""
        if self._requests.pop(sequence_id, None):
            self._scheduler.finish(sequence_id, FinishReason.CANCELLED)

    def _deliver(self, sampled: Sampled) -> None:
        """Turn a token into text and hand it on. What fails here ends this request alone."""
        running = self._requests.get(sampled.sequence_id)
        if running is None:
            return
        try:
            event = self._next_event(running, sampled)
        except Exception as error:
            log.exception("request %d failed in the text path", sampled.sequence_id)
            running.stream.fail(GenerationError(f"{type(error).__name__} in the text path"))
            self._end(sampled.sequence_id, FinishReason.ERROR)
            return
        running.stream.put(event)
        if event.ending is not None:
            self._end(sampled.sequence_id, event.ending.finish_reason)

    def _next_event(self, running: _Running, sampled: Sampled) -> Event:
        piece = running.text.push(sampled.token_id)
        running.num_tokens += 1
        reason = FinishReason.STOP_SEQUENCE if piece.is_stop else sampled.finish_reason
        return Event(
            Token(sampled.token_id, piece.text, sampled.logprob, piece.is_special),
            Ending(reason, running.text.text, running.num_tokens) if reason else None)

    def _end(self, sequence_id: int, reason: FinishReason) -> None:
        del self._requests[sequence_id]
        self._scheduler.finish(sequence_id, reason)

    def _note_plan(self, plan: Plan, now: float) -> None:
        """For those that begin to run with it, and in the traces of those that have one."""
        for admission in plan.admitted:
            running = self._requests.get(admission.sequence_id)
            if running is not None and running.stream.started_at is None:
                running.stream.started_at = now
                running.stream.hit_tokens = admission.hit_tokens
        for sequence_id, start, count in plan.chunks:
            self._trace(sequence_id, "prefill_chunk", start=start, tokens=count)
        for sequence_id in plan.preempted:
            self._trace(sequence_id, "preempted")

    def _note_loss(self) -> None:
        for plan in self._in_flight:
            self._metrics.lost(plan)
        for sequence_id, running in self._requests.items():
            if running.stream.started_at is not None:
                self._trace(sequence_id, "replay", generated_tokens=running.num_tokens)

    def _trace(self, sequence_id: int, name: str, **facts: int) -> None:
        running = self._requests.get(sequence_id)
        if running is not None and (trace := running.stream.request.trace) is not None:
            trace.note(name, **facts)

    def _note_occupancy(self) -> None:
        memory = self._scheduler.memory
        self._metrics.occupancy(
            self._scheduler.num_waiting, self._scheduler.num_running, memory.num_held, memory.num_available,
            self._scheduler.num_wasted_slots, memory.block_size)
