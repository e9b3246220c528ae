"""Answers that were promised by a time: which ones can be, and what is done so that they make it.

A deadline is promised if a forecast of all that is there says so, with a margin, and says no other promise would be
broken for it. Sequences with a promise keep their place in the order. From its latest start on one comes before all
others that wait, and takes slot and memory from those that run without a promise, the last first. While it runs it is
preempted only where nobody without a promise is left, its prompt gets as much of a step as it can use, and the prompts
of others only as much as leaves steps short enough for it. None of that holds while one without a promise waits that
was passed `MAX_PASSED` times; each that comes before others for its promise passes the first of them.

What is promised is the time of the most tokens that it may have. So are all others expected to run to their most.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Items
from itertools import chain
from math import ceil, inf
from operator import itemgetter

from penstock.router.scheduling.admission import MAX_PASSED
from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.estimate import Estimate, Forecast, Room, Work
from penstock.router.scheduling.pace import Pace
from penstock.router.scheduling.plan_builder import PlanBuilder
from penstock.router.scheduling.promise import Verdict
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.suspects import Suspects
from penstock.router.scheduling.wait_reasons import WaitReason

KEPT_MARGIN = 1.1
"""By which factor estimates are taken to be too short for promises that were made: less than before, so that others get
the difference."""
LEAST_BESIDE = 4
"""How many tokens of others' prompts each step has, if any run, however short it has to be for promises."""


class Promises:
    """Judges deadlines, and says in each plan who comes first for the promises of `batch`. `in_flight` has the steps in
    flight, each with the number of its tokens as the last. A sequence gets a token in each `rounds`-th step, and
    `step_tokens` tells how many a step may have."""

    def __init__(
        self, batch: Batch, suspects: Suspects, in_flight: Collection[tuple[object, object, int]], max_slots: int,
        rounds: int, clock: Callable[[], float], step_tokens: Callable[[], int],
    ) -> None:
        self._batch, self._suspects, self._in_flight = batch, suspects, in_flight
        self._max_slots, self._rounds = max_slots, rounds
        self.pace, self._step_tokens = Pace(clock, step_tokens()), step_tokens
        self._sequences: dict[int, Sequence] = {}
        self._urgent: list[Sequence] = []
        """Those that wait and have to begin now, in this plan."""
        self._most_tokens: float = inf
        """How many tokens the step may have as soon as there are some of others than those with promises."""
        self._tokens_before: int | None = None

    def __len__(self) -> int:
        return len(self._sequences)

    def judge(self, sequence: Sequence, has_group: bool = True) -> Verdict:
        """Says whether a sequence that is to be added would end when it is due; if so, its promise notes by which
        estimate. Nothing is known while the group is away."""
        promise, batch, now = sequence.promise, self._batch, self.pace.now()
        assert promise is not None
        left, alone = promise.due_at - now, self._alone(sequence)
        if self.pace.is_known and alone.total > left:
            return Verdict(left, alone, alone, 0)
        own = self._work(sequence)
        others = [each for each in batch.running if not each.is_background]
        running = {each: self._work(each) for each in (*others, *batch.leaving)}
        before = [each for each in batch.waiting if not each.is_background
                  and (each.order < sequence.order or each.has_promise or batch.waiting.shares.is_on)]
        if (obstacle := self._obstacle(sequence, before) if has_group else WaitReason.GROUP) is not None:
            return Verdict(left, alone, alone, len(before), obstacle=obstacle)
        waiting = {each: self._work(each) for each in before}
        room = Room(self._max_slots, batch.memory.pool.num_blocks, self._step_tokens(), self._rounds, LEAST_BESIDE)
        promised = {each: work for each, work in (running | waiting).items() if each.id in self._sequences}
        queue = [work for _, work in sorted(
            [*((each.order, work) for each, work in waiting.items()), (sequence.order, own)], key=itemgetter(0))]
        forecast = Forecast(self.pace.seconds, room, [*running.values()], queue)
        forecast.run([own, *promised.values()])
        if own.ended_at is None:
            return Verdict(left, alone, alone, len(before), obstacle=WaitReason.MEMORY)
        pause = self.pace.pause + sum(self.pace.seconds(number) for _, _, number in self._in_flight)
        broken = self._late(promised, now, pause)
        if broken:  # which may be late without this one, too
            works = {each: self._work(each) for each in (*running, *waiting)}
            without = {each: works[each] for each in promised}
            Forecast(self.pace.seconds, room, [works[each] for each in running],
                     [works[each] for each in waiting]).run([*without.values()])
            broken -= self._late(without, now, pause)
        num_before = len(before) + (len(running) if own.started_at > 0 else 0)
        if not (self.pace.is_known or running or waiting):
            left = inf
        verdict = Verdict(left, own.estimate.times(self.pace.margin, pause), alone, num_before, bool(broken))
        if verdict.can_be_met:
            promise.made_at, promise.expected = now, own.estimate
        return verdict

    def _obstacle(self, sequence: Sequence, before: Items[Sequence]) -> WaitReason | None:
        """Returns why a sequence could not run though all those before it do, if there is a reason."""
        if not self._batch.adapters.is_loaded(sequence.adapter):
            return WaitReason.ADAPTER
        return None if self._batch.kv_use.has_room(sequence, before) else WaitReason.QUOTA

    def _late(self, promised: dict[Sequence, Work], now: float, pause: float) -> set[Sequence]:
        """Returns those whose promise would be broken by a forecast, and is not yet."""
        factor, begin = KEPT_MARGIN * self.pace.bias, now + pause
        return {each for each, work in promised.items() if each.promise is not None and each.promise.due_at > now and (
            work.ended_at is None or begin + factor * work.ended_at > each.promise.due_at)}

    def _alone(self, sequence: Sequence) -> Estimate:
        """Returns how long a sequence takes alone, with the margin."""
        work = self._work(sequence)
        room = Room(1, work.blocks, self._step_tokens(), self._rounds)
        Forecast(self.pace.seconds, room, (), [work]).run([work])
        return work.estimate.times(self.pace.margin)

    def _work(self, sequence: Sequence) -> Work:
        """Returns the work that is left of a sequence."""
        memory, length = self._batch.memory, len(sequence.tokens)
        if sequence.status in (Status.FINISHED, Status.DRAINING):
            return Work(0, 1, len(sequence.blocks))
        blocks = max(len(sequence.blocks), memory.blocks_for(sequence.max_length))
        if sequence.status is Status.RUNNING:
            left = max(0, sequence.prefill_end - sequence.computed)
            return Work(left, max(1, sequence.max_length - sequence.planned_length), blocks)
        if sequence.matched is not None:
            depth = sequence.matched.depth
        else:
            depth = 0 if sequence.needs_all_tokens else memory.hit_blocks(sequence.namespace, sequence.tokens)
        return Work(max(1, length - depth * memory.block_size), max(1, sequence.max_length - length), blocks)

    def add(self, sequence: Sequence) -> None:
        """Takes in a sequence, which may have a promise."""
        if (promise := sequence.promise) is None:
            return
        self._sequences[sequence.id] = sequence
        needed = self._alone(sequence)
        if promise.expected is not None:
            expected = promise.expected.times(self.pace.margin)
            needed = Estimate(0.0, needed.prompt, max(needed.tokens, expected.tokens))
        promise.latest_start = promise.due_at - needed.total - self.pace.pause

    def forget(self, sequence_id: int) -> None:
        """Takes in that a sequence has ended, which may have a promise. Its time tells how good the estimate was."""
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is None or sequence.promise is None or sequence.promise.expected is None:
            return
        promise, expected = sequence.promise, sequence.promise.expected
        most = max(1, sequence.max_length - sequence.prompt_length)
        if number := len(sequence.tokens) - sequence.prompt_length:
            tokens = expected.tokens * (number - 1) / max(1, most - 1)
            self.pace.answered(expected.waiting + expected.prompt + tokens, self.pace.now() - promise.made_at)

    def plan(self) -> None:
        """Begins a plan: finds who has to begin now, and how long its step may take."""
        if not self._in_flight:
            self.pace.begin()
        self._most_tokens, self._tokens_before, self._urgent = inf, None, []
        if not self._sequences or self._suspects.alone is not None:
            return
        runs, late, now, step_tokens = [], [], self.pace.now(), self._step_tokens()
        for each in self._sequences.values():
            promise = each.promise
            assert promise is not None
            promise.is_over = promise.due_at <= now
            if each.status is Status.RUNNING and not promise.is_over:
                runs.append(each)
            elif each.status is Status.WAITING and promise.latest_start <= now and not promise.is_over:
                late.append(each)
        if self._is_overdue:
            return
        self._urgent = [each for each in late if self._batch.is_able(each, self._suspects)]
        if runs:
            allowance = min(self._allowance(each, now, step_tokens) for each in runs)
            self._most_tokens = bisect_right(range(step_tokens + 1), allowance, key=self.pace.seconds) - 1
        if self._urgent:
            self._urgent.sort(key=lambda each: each.promise.latest_start if each.promise else inf)
            self._make_way(self._urgent[0])

    @property
    def _is_overdue(self) -> bool:
        """Whether the first without a promise that waits was passed so often that promises count no more."""
        first = self._batch.first_without_promise(self._suspects)
        return first is not None and first.num_passed >= MAX_PASSED

    def _allowance(self, sequence: Sequence, now: float, step_tokens: int) -> float:
        """Returns how long steps may take on average until a running sequence ends."""
        assert sequence.promise is not None
        prompt = ceil(max(0, sequence.prefill_end - sequence.computed) / step_tokens)
        steps = prompt + self._rounds * max(1, sequence.max_length - sequence.planned_length)
        return (sequence.promise.due_at - now - self.pace.pause) / (steps + 1) / (KEPT_MARGIN * self.pace.bias)

    def _make_way(self, sequence: Sequence) -> None:
        """Preempts those without a promise, the last first, until there are a slot and memory for one that has to begin
        now."""
        batch, memory = self._batch, self._batch.memory
        depth = sequence.matched.depth if sequence.matched is not None else 0
        needed = memory.blocks_for(len(sequence.tokens)) - depth
        while not (batch.num_slots_coming and batch.num_blocks_coming >= needed + sum(
                memory.reserve_of(each) for each in batch.running)):
            others = [each for each in batch.running if not each.has_promise]
            if not others:
                return
            batch.evict(batch.waiting.shares.last(others))

    def in_turn(self, waiting: Iterable[Sequence]) -> Iterable[Sequence]:
        """Returns those that wait in the order in which they may begin."""
        if not self._urgent:
            return waiting
        urgent = [*self._urgent]
        return chain(urgent, (each for each in waiting if each not in urgent))

    def prompts(self, ready: Items[Sequence]) -> Items[Sequence]:
        """Returns those of some that run whose prompts are computed, in the order in which they are."""
        prompts = [each for each in ready if each.is_prefilling]
        return sorted(prompts, key=lambda each: not each.has_promise) if self._sequences else prompts

    def room(self, sequence: Sequence, builder: PlanBuilder) -> int:
        """Returns how many tokens of the step a sequence may have for its prompt. One without a promise may begin only
        where there is time for it beside those that have one; once they run all such have `LEAST_BESIDE` of a step."""
        if self._most_tokens == inf or sequence.has_promise:
            return builder.budget
        if self._tokens_before is None:
            self._tokens_before = builder.num_tokens
        room = self._most_tokens - builder.num_tokens
        if sequence.status is Status.RUNNING:
            room = max(room, LEAST_BESIDE - (builder.num_tokens - self._tokens_before))
        return max(0, min(builder.budget, int(room)))

    def admitted(self, sequence: Sequence) -> None:
        """Takes in that a waiting sequence begins. One that does so for its promise passes the first without one."""
        if sequence in self._urgent:
            self._urgent.remove(sequence)
            first = self._batch.first_without_promise(self._suspects)
            if first is not None and first.order < sequence.order:
                first.num_passed += 1
