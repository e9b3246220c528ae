"""The engine drives one group of shards and turns requests into streams of tokens.

A request survives the loss of its group: the scheduler lets every sequence wait again, with its output as part of its
input, and the streams go on where they paused once the group is back, or at once in another group.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from math import isnan

from penstock.contract.facts import Facts
from penstock.contract.plan import Plan
from penstock.contract.side_inputs import namespace_of
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.engine.adapter_loader import AdapterLoader
from penstock.router.engine.downtime import Downtime
from penstock.router.engine.guessers import Guessers
from penstock.router.engine.request import Request
from penstock.router.engine.request_table import RequestTable
from penstock.router.engine.side_inputs import side_inputs_of
from penstock.router.engine.starting import Starting
from penstock.router.engine.steps_in_flight import StepsInFlight
from penstock.router.engine.transfer import Transfer
from penstock.router.errors import GenerationError, KilledGroup, RouterError, Unhealthy
from penstock.router.fleet.errors import FleetError, OtherFacts
from penstock.router.fleet.fleet import Fleet
from penstock.router.grammar.mask_worker import MaskWorker
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.scheduling.confirmed import Candidates, Other, Pooled, PromptLogprobsPart, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.speculation.speculation import Speculation
from penstock.router.scheduling.step_budget import StepBudget
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.05
"""The pause between two attempts to open a group, in seconds, when the group answers but is lost again at once."""
LOOK_SECONDS = 1.0
"""How often it is looked, while nothing runs, whether those that wait have room: time makes some for adapters, too."""
MAY_CHANGE = ("num_blocks", "first_blocks", "step_tokens", "numerics", "memory_id")
"""The facts that may have changed when the group is back."""


class Engine:
    """Owns the scheduler and the fleet. Its one task is `run`; handlers call its other methods on the same event loop.

    `facts` are the group's, with no more KV blocks than the engine may use: it never uses more, whatever the group
    reports when it is opened. Up to `pipeline_depth` steps are in flight, by default 2 or one for each stage: the next
    is planned and sent before the tokens of the running one are back. The masks of a step are sent after it, once the
    tokens of all steps before it are back. Requests wait `max_downtime` seconds for a group that was lost. `adapters`
    are those that requests may come with. An engine that is not the only one (`is_one_of_many`) knows the prefixes of
    its requests at once.
    """

    def __init__(
        self,
        fleet: Fleet,
        facts: Facts,
        limits: Limits,
        metrics: Metrics,
        pipeline_depth: int | None = None,
        max_downtime: float = 120.0,
        adapters: Registry | None = None,
        *,
        name: str = "",
        is_one_of_many: bool = False,
    ) -> None:
        adapters = Registry() if adapters is None else adapters
        self.name = name
        self._called = f" {name}" if name else ""
        self.facts = facts
        self._fleet = fleet
        self._metrics = metrics
        self._depth = pipeline_depth or max(2, facts.num_stages)
        self._downtime = Downtime(max_downtime, self._expire)
        self._stream_limits = StreamLimits(
            max_slots=limits.max_slots, max_step_tokens=limits.max_batch_prefill_tokens,
            max_blocks_per_slot=-(-limits.max_total_tokens // facts.block_size))
        self._scheduler = Scheduler(
            block_size=facts.block_size, num_blocks=facts.num_blocks, max_slots=limits.max_slots,
            max_step_tokens=limits.max_batch_prefill_tokens, eos_token_ids=facts.eos_token_ids,
            budget=StepBudget(facts.step_tokens, limits.min_step_tokens, limits.max_batch_prefill_tokens),
            shares_prefixes=facts.shares_prefixes, num_microbatches=min(self._depth, max(1, facts.num_stages)),
            adapters=Residency(adapters.max_bytes), knows_live_prefixes=is_one_of_many, speculation=(
                Speculation(limits.speculate, limits.max_step_samples) if limits.speculate else None),
            is_whole=facts.is_whole, clock=time.monotonic)
        self.limits = limits.within(facts)
        """The limits of requests: less than at the start while the group has less memory."""
        self._limits_at_start = limits
        self._most_blocks = facts.most_blocks
        self._requests = RequestTable(self._scheduler.finish, metrics.groups.resumed, metrics.deadlines.answered)
        self._starting = Starting(
            self._scheduler, self._requests, facts, Guessers(limits.speculate > 0, facts.draft_context),
            most_forced=limits.speculate + self._depth)
        self._in_flight = StepsInFlight()
        self._mask_worker = MaskWorker()
        self._lost_at: float | None = None
        """When the group was lost; None while it is there."""
        self.is_stuck = False
        """Whether a step has taken so long that it is suspected."""
        self._work = asyncio.Event()
        self._adapters = AdapterLoader(fleet, self._scheduler, adapters, metrics.adapters, name,
                                       self._requests.fail_adapter, self._work.set, self._requests.adapters)
        self.is_healthy = True
        """Whether the engine takes requests: also while the group is away, as long as requests wait for it."""
        self.has_group = False
        """Whether the group is open and runs steps."""
        self.notify: Callable[[], None] = lambda: None
        """Called when `is_healthy` or `has_group` may have changed, or all requests are about to fail because the group
        stays away: it may move requests to another engine."""
        self._is_overdue = False
        """Whether the group stays away, or is another one now, so that all requests are about to fail."""

    def take(self, transfer: Transfer) -> None:
        """Starts to generate, or goes on where another engine has stopped.

        Raises Unhealthy while the engine takes no requests, the errors of deadlines for a new one that would miss its
        own, and GenerationError if the request was checked when there was more memory, here or in a group that is gone,
        or the shards fail whenever they load its adapter.
        """
        request = transfer.receiver.request
        if not self.is_healthy:
            raise Unhealthy
        if len(request.input_ids) + transfer.num_tokens + (request.pooling is None) > self._scheduler.memory.capacity:
            raise self._too_long()
        if len(request.input_ids) + request.max_new_tokens > self._limits_at_start.max_total_tokens:
            raise self._too_long()
        if request.adapter is not None:
            self._adapters.use(request.adapter)
        self._starting.start(transfer, self.has_group)
        self._work.set()

    def may_leave(self) -> list[tuple[int, Request]]:
        """Returns the requests that may go on in another group, by their ids, the oldest first. Those that have killed
        this group more than once stay as long as it may come back, so that they kill no other."""
        return self._requests.leaving(self._scheduler.releasable(bound_too=self._is_overdue))

    def release(self, sequence_id: int) -> Transfer:
        """Lets go of a request at the output position of its receiver, for another engine to take."""
        state = self._requests.remove(sequence_id)
        paused_since = state.paused_since(self._lost_at)
        if state.beams is not None:
            age, carried = state.beams.carry()
            return Transfer(state.receiver, (), age, left_at=paused_since, beams=carried)
        released = self._scheduler.release(sequence_id)
        # A grammar may not have seen the last of the tokens yet: these are computed once more.
        return Transfer(state.receiver, released.output[:state.receiver.num_tokens], released.age, released.record,
                        paused_since)

    @property
    def num_requests(self) -> int:
        return self._requests.number

    @property
    def has_trial(self) -> bool:
        """Whether requests are run of which one is likely to kill the group."""
        return self._scheduler.suspects.are_on_trial

    def load(self, is_background: bool = False) -> float:
        """Returns how much is to be done before one more request that is of the background, or not, in tokens: those
        that have to be computed first, and the KV memory held."""
        return self._scheduler.load(is_background) * self.facts.block_size

    def hit_tokens(self, request: Request) -> int:
        """Returns how many tokens of a request's prompt are computed already, or will be."""
        namespace = namespace_of(side_inputs_of(request), request.salt)
        return self._scheduler.hit_blocks(namespace, request.input_ids) * self.facts.block_size

    def drop_adapter(self, adapter: Adapter | None) -> None:
        """Has an adapter that was removed, if its files were ever read, unloaded once the requests that were submitted
        with it have ended."""
        self._adapters.drop(adapter)

    def stalled_seconds(self) -> float:
        """Returns for how long no step has come back, though requests run.

        The result is 0 while no request runs, and none runs while the group is away: that time ends when the group is
        back, or after `max_downtime`. A request that waits while others are computed, for memory or for a suspect that
        runs alone, does not count: the router is in order.
        """
        return self._in_flight.seconds if self._scheduler.num_running else 0.0

    def look(self, step_limit: float) -> None:
        """Suspects the steps in flight once none has come back for `step_limit` seconds, and unusually long: the group
        may hang, and what runs is treated as if it had died of it. Whoever runs the shards ends those that hang."""
        if not self.is_stuck and self._in_flight.are_late(step_limit):
            log.warning("the group%s has not come back with a step for %.1f s", self._called, self._in_flight.seconds)
            self.is_stuck = True
            self._scheduler.accuse()
            self.notify()
            self._note_occupancy()

    async def run(self) -> None:
        """Drives the group, and waits for it when it is lost, until cancelled. Raises any error but a lost group."""
        self._downtime.begin()
        try:
            while True:
                try:
                    await self._open()
                    await self._drive()
                except FleetError as error:
                    self._requests.settle([*await self._mask_worker.accepted(), *await self._mask_worker.masks()])
                    self._lose(error)
                    await asyncio.sleep(RECONNECT_SECONDS)
        except OtherFacts:
            self._is_overdue = True
            raise
        except Exception as error:
            self.fail_all(GenerationError(f"Server error: {error}"))
            raise
        finally:
            self._downtime.end()
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
        """Waits for something to do, or for a while if sequences wait. Raises FleetError if the group is lost
        meanwhile, so that `has_group` tells."""
        tasks = _, end = asyncio.create_task(self._work.wait()), asyncio.create_task(self._fleet.end())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED,
                               timeout=LOOK_SECONDS if self._scheduler.num_waiting else None)
            if end.done():
                await end
        finally:
            for task in tasks:
                task.cancel()
        self._work.clear()

    def _commit(self, result: StepResult) -> None:
        """Delivers a step's results; the tokens of requests with a grammar wait until the grammar has seen them."""
        plan, came_at = self._in_flight.popleft(), time.monotonic()
        if self.is_stuck:
            self.is_stuck = False
            self.notify()
        confirmed = self._scheduler.commit(result)
        committed_at = time.monotonic()
        for each in confirmed:
            state = self._requests.get(each.sequence_id)
            if state is None:
                continue
            if isinstance(each, Verified):
                state.receiver.verified(each)
            elif isinstance(each, Other):
                state.receiver.take_other(each)
            elif isinstance(each, Pooled):
                self._requests.pool(each)
            elif any(map(isnan, each.logprobs)) if isinstance(each, PromptLogprobsPart) else isnan(each.logprob):
                self._requests.fail_nan(each.sequence_id)
            elif isinstance(each, PromptLogprobsPart):
                state.receiver.take_prompt_logprobs(each)
            elif each.finish_reason is FinishReason.ERROR:
                self._fail_too_long([each.sequence_id])
            elif isinstance(each, Candidates):
                self._requests.consider(each)
            elif state.cursor is not None and not state.cursor.skip(each.token_id):
                self._mask_worker.hold(state.cursor, each)
            else:
                self._requests.deliver(each)
        self._begin_masks()
        self._scheduler.observe(plan, result)
        self._metrics.step(plan, result, confirmed, committed_at - came_at, time.monotonic() - committed_at)

    def _plan(self) -> Plan | None:
        self._adapters.begin(is_quiet=not self._in_flight)
        if self._adapters.needs_quiet:
            return None
        began_at = time.monotonic()
        plan = self._scheduler.plan()
        if plan is not None:
            now = time.monotonic()
            self._requests.planned(plan, now)
            self._metrics.planned(plan, now - began_at)
        elif not self._in_flight:
            self._adapters.begin(is_quiet=True)  # a suspect that runs alone may have made room for its adapter
        return plan

    def _begin_masks(self) -> None:
        if self._in_flight:  # and all tokens before the oldest step are known
            self._mask_worker.begin(self._requests.cursors(self._in_flight[0].masked))

    async def _open(self) -> None:
        """Waits for the group. It may come back with other memory and numerics; all else must be as it was."""
        found = await self._fleet.open(self._stream_limits)
        facts = found.within(self._most_blocks)
        if complaint := self.facts.complaint(facts, MAY_CHANGE):
            raise OtherFacts(complaint)
        if facts.numerics != self.facts.numerics:
            self._metrics.groups.other_numerics(number := self._requests.fail_bound(facts.bits))
            log.warning("the group's numerics changed from %s to %s: %d answers that were under way may differ from an "
                        "undisturbed run", self.facts.numerics, facts.numerics, number)
        if facts.memory_id != self.facts.memory_id or facts.num_blocks != self._scheduler.memory.pool.num_blocks:
            too_long = self._scheduler.resize(facts.num_blocks)
            self.limits = self._limits_at_start.within(facts)
            self._fail_too_long(too_long)
        self.facts = facts
        self.is_healthy = self.has_group = True
        self._is_overdue = self.is_stuck = False
        if self._lost_at is not None:
            log.info("the group%s is back", self._called)
        self._lost_at = None
        self._downtime.end()
        self.notify()

    def _fail_too_long(self, sequence_ids: Iterable[int]) -> None:
        """Fails requests that no longer fit: a group that was started again found less memory than it had."""
        for sequence_id in sequence_ids:
            self._requests.fail(sequence_id, self._too_long())

    def _too_long(self) -> GenerationError:
        return GenerationError("Server error: there are only shards left or started again with KV memory for "
                               f"{self.limits.max_total_tokens} tokens, and this request needs more")

    def _lose(self, error: FleetError) -> None:
        """Lets every sequence wait again after the loss of the group, and fails those that have killed it."""
        self.has_group = False
        self._lost_at = time.monotonic() if self._lost_at is None else self._lost_at
        for plan in self._in_flight:
            self._metrics.lost(plan)
        self._requests.trace_replays()
        forgotten = self._scheduler.forget_all(accuses=not error.is_outside and not self.is_stuck)
        self._in_flight.clear()
        log.error("the group%s is lost: %s; %d requests will go on when it is back, or in another", self._called, error,
                  forgotten.num_replayed)
        self._metrics.replayed(forgotten.num_replayed)
        self._adapters.lose()
        for sequence_id in forgotten.given_up:
            self._requests.fail(sequence_id, KilledGroup(
                f"Server error: {MAX_SOLO_DEATHS} times in a row the shards died while they ran this request alone"))
        if not self._downtime.has_begun and self.is_healthy:
            self._metrics.group_restarted()
            self._downtime.begin()
        self.notify()
        self._note_occupancy()

    def keep_waiting(self, seconds: float | None = None) -> None:
        """Lets requests wait for the group for the whole of `max_downtime` again, which is `seconds` from now on."""
        if seconds is not None:
            self._downtime.seconds = seconds
        self._downtime.extend()

    def _expire(self) -> None:
        self._is_overdue = True
        self.notify()
        log.error("the group%s is away, and has made no progress in loading for %g s: its %d requests fail",
                  self._called, self._downtime.seconds, self.num_requests)
        self.give_up()

    def give_up(self) -> None:
        """Fails all requests with Unhealthy and refuses new ones until the group is opened anew."""
        self.fail_all(Unhealthy())

    def fail_all(self, error: RouterError) -> None:
        """Fails all requests with the error and refuses new ones."""
        self.is_healthy = False
        self._requests.fail_all(error)
        self.notify()

    def _note_occupancy(self) -> None:
        now = self._scheduler.occupancy
        self._metrics.occupancy(self.name, now if self.has_group else now.while_away())
        self._adapters.note()
