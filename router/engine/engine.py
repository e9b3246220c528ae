"""The engine drives one group of shards and turns requests into streams of tokens.

A request survives the loss of its group: the scheduler lets every sequence wait again, with its output as part of its
input, and the streams go on where they paused once the group is back.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from math import isnan

from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.engine.adapter_loader import AdapterLoader
from penstock.router.engine.limits import Limits
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.request import Request
from penstock.router.engine.request_table import RequestState, RequestTable
from penstock.router.errors import GenerationError, KilledGroup, Overloaded, RouterError, Unhealthy
from penstock.router.fleet.errors import FleetError
from penstock.router.fleet.facts import Facts
from penstock.router.fleet.fleet import Fleet
from penstock.router.fleet.wire import StreamLimits
from penstock.router.grammar.cursor import GrammarCursor
from penstock.router.grammar.mask_worker import MaskWorker
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.metrics.metrics import Metrics
from penstock.router.scheduling import sequence
from penstock.router.scheduling.plan import Confirmed, FinishReason, Plan, PromptLogprobsPart, StepResult, Verified
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.speculation.guesser import DraftedGuesser, Guesser, LookupGuesser, common_share
from penstock.router.scheduling.speculation.speculation import Speculation
from penstock.router.scheduling.step_budget import StepBudget
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.05
"""The pause between two attempts to open a group, in seconds, when the group answers but is lost again at once."""
MAY_CHANGE = ("num_blocks", "first_blocks", "step_tokens", "numerics", "memory_id")
"""The facts that may have changed when the group is back."""


class Engine:
    """Owns the scheduler and the fleet. Its one task is `run`; handlers call its other methods on the same event loop.

    `facts` are the group's, with no more KV blocks than the engine may use: it never uses more, whatever the group
    reports when it is opened. Up to `pipeline_depth` steps are in flight: the next one is planned and sent before the
    tokens of the running one are back. The masks of a step are sent after it, once the tokens of all steps before it
    are back. Requests wait `max_downtime` seconds for a group that was lost. `adapters` are those that requests may
    come with.
    """

    def __init__(
        self,
        fleet: Fleet,
        facts: Facts,
        limits: Limits,
        metrics: Metrics,
        pipeline_depth: int = 2,
        max_downtime: float = 120.0,
        adapters: Registry | None = None,
    ) -> None:
        adapters = Registry() if adapters is None else adapters
        self.facts = facts
        self._fleet = fleet
        self._metrics = metrics
        self._depth = pipeline_depth
        self._max_downtime = max_downtime
        self._downtime: asyncio.TimerHandle | None = None
        self._stream_limits = StreamLimits(
            max_slots=limits.max_slots,
            max_step_tokens=limits.max_batch_prefill_tokens,
            max_blocks_per_slot=-(-limits.max_total_tokens // facts.block_size))
        self._scheduler = Scheduler(
            block_size=facts.block_size, num_blocks=facts.num_blocks, max_slots=limits.max_slots,
            max_step_tokens=limits.max_batch_prefill_tokens, eos_token_ids=facts.eos_token_ids,
            budget=StepBudget(facts.step_tokens, limits.min_step_tokens, limits.max_batch_prefill_tokens),
            shares_prefixes=facts.shares_prefixes, num_turns=min(pipeline_depth, max(1, facts.num_stages)),
            adapters=Residency(adapters.max_bytes), speculation=(
                Speculation(limits.speculate, limits.max_step_samples) if limits.speculate else None))
        self.limits = limits.within(facts.capacity)
        """What requests may ask for: less than at the start while the group has less memory."""
        self._limits_at_start = limits
        self._most_blocks = facts.most_blocks
        self._draft_context = facts.draft_context
        self._proposals_right = common_share()
        self._permits = limits.max_concurrent_requests
        self._requests = RequestTable(self._scheduler.finish)
        self._next_id = 0
        self._in_flight: deque[Plan] = deque()
        self._mask_worker = MaskWorker()
        self._advanced_at = 0.0
        """When the last step came back, or the first was sent while none was in flight; of `time.monotonic`."""
        self._work = asyncio.Event()
        self._adapters = AdapterLoader(
            fleet, self._scheduler, adapters, metrics.adapters, self._requests.fail_adapter, self._work.set)
        self.is_healthy = True
        """Whether the engine takes requests: also while the group is away, as long as requests wait for it."""
        self.has_group = False
        """Whether the group is open and runs steps."""
        self.changed = asyncio.Event()
        """Set when `is_healthy` or `has_group` may have changed; the one who follows them clears it."""

    @asynccontextmanager
    async def permit(self, number: int = 1) -> AsyncIterator[None]:
        """Holds `number` of the permits for requests in the router. Raises Overloaded when fewer are left."""
        self.take_permits(number)
        try:
            yield
        finally:
            self.return_permits(number)

    def take_permits(self, number: int, *, may_exceed: bool = False) -> None:
        """Takes permits. Raises Overloaded when fewer are left, unless they may be exceeded."""
        if number and number > self._permits and not may_exceed:
            raise Overloaded
        self._permits -= number

    def return_permits(self, number: int) -> None:
        """Gives permits back."""
        self._permits += number

    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None:
        """Starts to generate after the prompt and `output_so_far` of the receiver's request.

        Raises Unhealthy while the engine takes no requests, and GenerationError if the group has lost memory since the
        request was checked, or the shards fail whenever they load its adapter.
        """
        request = receiver.request
        if not self.is_healthy:
            raise Unhealthy
        if len(request.input_ids) + len(output_so_far) >= self._scheduler.memory.capacity:
            raise self._too_long()
        adapter = request.adapter
        if adapter is not None:
            self._adapters.use(adapter)
        sequence_id = self._next_id
        self._next_id += 1
        receiver.bind(lambda: self._requests.cancel(sequence_id))
        tokens = [*request.input_ids, *output_so_far]
        guesser = self._guesser(request, tokens)
        assert not isinstance(request.grammar, GrammarSpec), "the grammar is not compiled"
        cursor = None if request.grammar is None else GrammarCursor(
            sequence_id, request.grammar, output_so_far,
            most_forced=self.limits.speculate + self._depth if guesser is not None else 0)
        self._requests[sequence_id] = RequestState(receiver, cursor, guesser)
        self._scheduler.add(sequence.Sequence(
            id=sequence_id, tokens=tokens, guesser=guesser, prompt_length=len(request.input_ids),
            max_length=len(request.input_ids) + request.max_new_tokens, sampling=request.sampling,
            ignore_eos=request.ignore_eos, stop_token_ids=request.stop_token_ids,
            has_grammar=request.grammar is not None, wants_prompt_logprobs=request.wants_prompt_logprobs,
            trace=request.trace.context if request.trace else b"",
            namespace=adapter.namespace if adapter else "", adapter=adapter.number if adapter else 0))
        self._work.set()

    def _guesser(self, request: Request, tokens: Sequence[int]) -> Guesser | None:
        """Returns what guesses the request's tokens. Proposals of the draft model can't be masked by a grammar."""
        if self._scheduler.speculation is None:
            return None
        if self._draft_context and request.grammar is None:
            return DraftedGuesser(tokens, self._draft_context, self._proposals_right)
        return LookupGuesser(tokens)

    async def add_adapter(self, source: AdapterSource) -> None:
        """Adds an adapter that requests may name. Raises InvalidAdapter."""
        await self._adapters.registry.add(source)
        self._adapters.note()

    async def remove_adapter(self, name: str) -> None:
        """Removes an adapter, which is unloaded once the requests that were submitted with it have ended. Raises
        AdapterNotFound."""
        adapter = self._adapters.registry.remove(name)
        if adapter is not None:
            self._adapters.drop(adapter)
        self._adapters.note()

    async def stalled_seconds(self) -> float:
        """Returns for how long no step has come back, though requests run.

        The result is 0 while no request runs, and none runs while the group is away:
        that time ends when the group is back, or after `max_downtime`. A request that waits while others are computed,
        for memory or for a suspect that runs alone, does not count: the router is in order.
        """
        return time.monotonic() - self._advanced_at if self._scheduler.num_running else 0.0

    async def run(self) -> None:
        """Drives the group, and waits for it when it is lost, until cancelled. Raises any error but a lost group."""
        try:
            while True:
                try:
                    await self._open()
                    await self._drive()
                except FleetError as error:
                    self._requests.settle([*await self._mask_worker.accepted(), *await self._mask_worker.masks()])
                    self._lose(error)
                    await asyncio.sleep(RECONNECT_SECONDS)
        except Exception as error:
            self._fail_all(GenerationError(f"Server error: {error}"))
            raise
        finally:
            self._adapters.close()
            self._mask_worker.close()

    async def _drive(self) -> None:
        """Plans and submits steps, sends the oldest one's masks, commits its result, delivers its tokens, in a loop."""
        while True:
            if self._scheduler.speculation is not None:  # what grammars force is guessed
                self._requests.settle(await self._mask_worker.accepted())
            while len(self._in_flight) < self._depth and (plan := self._plan()):
                self._in_flight.append(plan)
                if len(self._in_flight) == 1:
                    self._begin_masks()
                await self._fleet.submit(plan)
            self._note_occupancy()
            self._requests.settle(await self._mask_worker.accepted())
            if not self._in_flight:
                await self._rest()
                continue
            masks = self._requests.settle(await self._mask_worker.masks())
            if (oldest := self._in_flight[0]).masked:
                await self._fleet.submit_masks(
                    oldest.step_id, {slot: masks[id] for slot, id, _ in oldest.masked if id in masks})
            self._commit(await self._fleet.next_result())

    async def _rest(self) -> None:
        """Waits for something to do. Raises FleetError if the group is lost meanwhile, so that `has_group` tells."""
        tasks = _, end = asyncio.create_task(self._work.wait()), asyncio.create_task(self._fleet.end())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                await end
        finally:
            for task in tasks:
                task.cancel()
        self._work.clear()

    def _commit(self, result: StepResult) -> None:
        """Delivers what a step yielded; the tokens of requests with a grammar wait until the grammar has seen them."""
        plan, came_at = self._in_flight.popleft(), time.monotonic()
        confirmed = self._scheduler.commit(result)
        committed_at = time.monotonic()
        for each in confirmed:
            state = self._requests.get(each.sequence_id)
            if state is None:
                continue
            if isinstance(each, Verified):
                state.receiver.verified(each)
            elif any(map(isnan, each.logprobs if isinstance(each, PromptLogprobsPart) else [each.logprob])):
                log.error("request %d fails: the model computed something that is not a number (NaN)", each.sequence_id)
                self._requests.fail(each.sequence_id, GenerationError(
                    "Server error: the model computed something that is not a number (NaN)"))
            elif isinstance(each, PromptLogprobsPart):
                state.receiver.take_prompt_logprobs(each)
            elif each.finish_reason is FinishReason.ERROR:
                self._fail_too_long([each.sequence_id])
            elif state.cursor is not None:
                self._mask_worker.hold(state.cursor, each)
            else:
                self._requests.deliver(each)
        self._begin_masks()
        self._note_step(plan, result, confirmed, came_at, committed_at)

    def _plan(self) -> Plan | None:
        self._adapters.begin(is_quiet=not self._in_flight)
        if self._adapters.needs_quiet:
            return None
        began_at = time.monotonic()
        plan = self._scheduler.plan()
        if plan is not None:
            self._note_plan(plan, began_at)
        elif not self._in_flight:
            self._adapters.begin(is_quiet=True)  # a suspect that runs alone may have made room for its adapter
        return plan

    def _begin_masks(self) -> None:
        """Starts to compute the masks of the step that is now the oldest in flight: all tokens before it are known."""
        if self._in_flight:
            self._mask_worker.begin(self._requests.cursors(self._in_flight[0].masked))

    async def _open(self) -> None:
        """Waits for the group. It may come back with other memory and numerics; other facts must be as they were."""
        found = await self._fleet.open(self._stream_limits)
        facts = found.within(self._most_blocks)
        if differences := self.facts.differences(facts, besides=MAY_CHANGE):
            raise RuntimeError(f"the group came back with other facts, {', '.join(differences)}")
        if facts.numerics != self.facts.numerics:
            log.warning("the group's numerics changed from %s to %s: answers that were under way may differ from an "
                        "undisturbed run", self.facts.numerics, facts.numerics)
        if facts.memory_id != self.facts.memory_id or facts.num_blocks != self._scheduler.memory.pool.num_blocks:
            too_long = self._scheduler.resize(facts.num_blocks)
            self.limits = self._limits_at_start.within(facts.capacity)
            self._fail_too_long(too_long)
        self.facts = facts
        self.is_healthy = self.has_group = True
        self.changed.set()
        if self._downtime is not None:
            self._downtime.cancel()
            self._downtime = None
            log.info("the group is back")

    def _fail_too_long(self, sequence_ids: Iterable[int]) -> None:
        """Fails requests that no longer fit: a group that was started again found less memory than it had."""
        for sequence_id in sequence_ids:
            self._requests.fail(sequence_id, self._too_long())

    def _too_long(self) -> GenerationError:
        return GenerationError("Server error: the shards were started again with KV memory for "
                               f"{self._scheduler.memory.capacity} tokens, and this request needs more")

    def _lose(self, error: FleetError) -> None:
        """Lets every sequence wait again after the loss of the group, and fails those that have killed it."""
        self.has_group = False
        self.changed.set()
        for plan in self._in_flight:
            self._metrics.lost(plan)
        self._requests.trace_replays()
        forgotten = self._scheduler.forget_all()
        self._in_flight.clear()
        log.error("the group is lost: %s; %d requests will go on when it is back", error, forgotten.num_replayed)
        self._metrics.replayed(forgotten.num_replayed)
        self._adapters.lose()
        for sequence_id in forgotten.given_up:
            self._requests.fail(sequence_id, KilledGroup(
                f"Server error: {MAX_SOLO_DEATHS} times in a row the shards died while they ran this request alone"))
        if self._downtime is None and self.is_healthy:
            self._metrics.group_restarted()
            self._downtime = asyncio.get_running_loop().call_later(self._max_downtime, self._expire)

    def keep_waiting(self) -> None:
        """Lets requests wait for the group for the whole of `max_downtime` again: it makes progress in loading."""
        if self._downtime is not None:
            self._downtime.cancel()
            self._downtime = asyncio.get_running_loop().call_later(self._max_downtime, self._expire)

    def stop_waiting(self) -> None:
        """Has all requests fail as soon as the group is away, for it will not come back."""
        self._max_downtime = 0.0
        self.keep_waiting()

    def _expire(self) -> None:
        log.error("the group is away, and has made no progress in loading for %g s: its requests fail",
                  self._max_downtime)
        self.give_up()

    def give_up(self) -> None:
        """Fails all requests with Unhealthy and refuses new ones until the group is opened anew."""
        self._fail_all(Unhealthy())

    def _fail_all(self, error: RouterError) -> None:
        """Fails all requests with the error and refuses new ones."""
        self.is_healthy = False
        self.changed.set()
        self._requests.fail_all(error)

    def _note_plan(self, plan: Plan, began_at: float) -> None:
        now = time.monotonic()
        if not self._in_flight:
            self._advanced_at = now
        for admission in plan.admitted:
            self._requests.admitted(admission.sequence_id, now, admission.hit_tokens)
        for sequence_id, start, count in plan.chunks:
            self._requests.trace(sequence_id, "prefill_chunk", start=start, tokens=count)
        for sequence_id in plan.preempted:
            self._requests.trace(sequence_id, "preempted")
        self._metrics.planned(plan, now - began_at)

    def _note_step(
        self, plan: Plan, result: StepResult, confirmed: Sequence[Confirmed], came_at: float,
        committed_at: float
    ) -> None:
        self._advanced_at = now = time.monotonic()
        self._scheduler.observe(plan, result)
        self._metrics.step(plan, result, confirmed, committed_at - came_at, now - committed_at)

    def _note_occupancy(self) -> None:
        memory = self._scheduler.memory
        self._metrics.occupancy(
            self._scheduler.num_waiting, self._scheduler.num_running, memory.num_held, memory.num_available,
            self._scheduler.num_wasted_positions, memory.block_size, self._scheduler.budget.tokens)
        self._adapters.note()
