"""The scheduler decides which tokens of which sequences the next step computes, and in which blocks.

It batches continuously over a token budget: decode rows come first, then running prefills, then waiting sequences,
each in the order of their arrival and their priorities; prefills are cut to what is left of the budget and share a step
with decode rows. Where tenants have shares, each has its turn (`shares.py`). Blocks are allocated as sequences grow. If
none is left the last running sequence is preempted: it lets go of its blocks and waits in its old place, to be computed
again with prompt and output as its input. So do all sequences when the group dies.

*Finish* and *release* are two moments: a step in flight may still name a sequence that has ended, so its blocks
and its slot return when no step does, by one path (`Batch.release`).

Policies are asked at fixed points: `priorities.py` who comes first, `shares.py` whose turn it is, `step_budget.py` how
large a step may be, `microbatches.py` who is ready, `speculation/` which guesses to verify, `admission.py` who of the
waiting may run, `batching.py` when they may, `undecided.py` which beams make room for them, `background.py` how much
the background may have, `deadlines.py` who comes first for a promise, `suspects.py` who has to run alone.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Items
from dataclasses import replace

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.adapter_fairness import adapter_victim, wanted_adapters
from penstock.router.scheduling.admission import MAX_PASSED, AdmissionRound, others_wait
from penstock.router.scheduling.background import Background
from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.batching import Batching, Continuous
from penstock.router.scheduling.confirmed import Confirmed, Forgotten, Pooled, Sampled
from penstock.router.scheduling.deadlines import Promises
from penstock.router.scheduling.death_record import Released
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.guesses import choose_guesses
from penstock.router.scheduling.in_order import by_order, has_background, of_class
from penstock.router.scheduling.ledger import Ledger
from penstock.router.scheduling.live_prefixes import LivePrefixes
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.microbatches import next_microbatch
from penstock.router.scheduling.occupancy import Occupancy, load_before, occupancy_of
from penstock.router.scheduling.plan_builder import PlanBuilder
from penstock.router.scheduling.residency import AdapterOrders, Residency
from penstock.router.scheduling.results import take_answer, take_in
from penstock.router.scheduling.rows import decode_row, prefill_row
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.forks import add_forks
from penstock.router.scheduling.speculation.speculation import Speculation, sits_out
from penstock.router.scheduling.step_budget import GRAIN, StepBudget
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS, Suspects
from penstock.router.scheduling.tier import Tier
from penstock.router.scheduling.undecided import make_room
from penstock.router.scheduling.wait_reasons import KEEPS_BACKGROUND_OUT, WaitReason
from penstock.router.scheduling.waiting import Waiting
from penstock.router.scheduling.waits import Return, Waits


class Scheduler:
    """Has the verbs `add`, `fork`, `extend`, `plan`, `commit`, `finish` and `forget_all`, which take and return plain
    numbers.

    At most `max_slots` sequences run at once and a step computes at most `max_step_tokens`, or as many as are in
    `budget`. With `speculation`, steps verify guesses of the next tokens. A sequence that fills the memory, though its
    `max_length` is more, ends with an error. Sequences share the blocks of equal prefixes, unless the model carries a
    state beside them (`shares_prefixes`). One that needs an adapter waits until `adapters` has it loaded. They decode
    in `num_microbatches`, of which each step has one. What the memory has no room for may be kept in a `tier`. Each
    text is computed in one step, without blocks, if all are `is_whole`.
    """

    def __init__(
        self,
        *,
        block_size: int, num_blocks: int,
        max_slots: int, max_step_tokens: int, budget: StepBudget | None = None,
        eos_token_ids: Collection[int] = (),
        shares_prefixes: bool = True,
        speculation: Speculation | None = None,
        adapters: Residency | None = None, clock: Callable[[], float] = lambda: 0.0,
        knows_live_prefixes: bool = False, num_microbatches: int = 1,
        tier: Tier | None = None, batching: Batching | None = None, is_whole: bool = False,
    ) -> None:
        assert 0 < max_slots < max_step_tokens, "decode rows must leave room for a prefill"
        self.memory = KvMemory(block_size, num_blocks, shares_prefixes, tier, is_whole=is_whole)
        self.adapters, self._batching = adapters or Residency(), batching or Continuous()
        self.budget = budget or StepBudget(max_step_tokens, max_step_tokens, max_step_tokens)
        self.speculation, self._max_step_tokens, self._num_microbatches = speculation, max_step_tokens, num_microbatches
        self._eos_token_ids = frozenset(eos_token_ids)
        self._sequences: dict[int, Sequence] = {}
        self.ledger, self._waits = Ledger(clock), Waits(clock)
        self._waiting = Waiting(self.memory, self._waits)
        self._batch = Batch(self._waiting, max_slots, self.memory, self.adapters)
        self.suspects, self._next_step_id = Suspects(), 0
        self._background = Background(self._batch, self.suspects, max_slots)
        self._live_prefixes = LivePrefixes(block_size) if knows_live_prefixes else None
        self._in_flight: deque[tuple[int, list[tuple[Sequence, Row]], int]] = deque()
        self.promises = Promises(self._batch, self.suspects, self._in_flight, max_slots, num_microbatches, clock,
                                 lambda: self._step_tokens)

    def add(self, sequence: Sequence) -> None:
        """Lets a sequence wait, in its place. One that another group ran before may be suspected of its death."""
        assert sequence.least_length <= min(sequence.max_length, self.memory.capacity)
        assert not self.memory.is_whole or len(sequence.tokens) <= self._max_step_tokens
        self._sequences[sequence.id] = sequence
        self._batch.note_arrival(sequence)
        self._waiting.add(sequence)
        self.promises.add(sequence)
        if self._live_prefixes is not None:
            self._live_prefixes.add(sequence.id, sequence.namespace, sequence.tokens)
            self._waiting.match(sequence)
        if sequence.is_suspect:
            self.suspects.adopt(sequence)

    def plan(self) -> Plan | None:
        """Plans the next step; returns None when nothing can run. May preempt the last sequences."""
        builder, batch = PlanBuilder(self._step_tokens, self.memory.is_whole), self._batch
        self._waits.plan()
        self.promises.plan()
        if (suspect := self.suspects.alone) is not None:
            self._plan_alone(suspect, builder)
            self._waits.hold_all(WaitReason.SUSPECT, self.num_waiting)
        else:
            self._background.make_way(self._waiting)
            ready = next_microbatch(batch.running, self._num_microbatches, bool(self._waiting and batch.free_slots))
            self._plan_class(ready, builder, is_background=False)
            if has_background(batch.running) or has_background(self._waiting):
                self._background.limit(builder, self._waiting, not self._in_flight, self.speculation)
                self._plan_class(ready, builder, is_background=True)
        if not builder.rows:
            return None
        plan = builder.build(self._next_step_id, batch.cleared_slots, batch.preempted, batch.take_copies())
        self._in_flight.append((plan.step_id, builder.rows, builder.num_tokens))
        batch.cleared_slots, batch.preempted = [], []
        self._next_step_id += 1
        return plan

    @property
    def _step_tokens(self) -> int:
        """How many tokens the next step may have: also room for a chunk beside a row of each sequence that runs."""
        return min(max(self.budget.tokens, self.num_running + GRAIN), self._max_step_tokens)

    def _plan_class(self, ready: Items[Sequence], builder: PlanBuilder, is_background: bool) -> None:
        """Adds the rows of those that are of the background, or of all others: of some that run and may have one, and
        of those that begin to run."""
        ready = of_class(ready, is_background)
        if self._waiting.shares.is_on:
            ready = self._waiting.shares.rows_in_turn(ready)
        speculation = self.speculation if not is_background or self._background.is_alone else None
        guesses = {} if speculation is None else choose_guesses(
            speculation, self._batch, ready, self._waiting.in_turn(is_background), builder, is_background)
        for sequence in ready:
            if sequence.wants_decode and not sits_out(sequence, own := guesses.get(sequence.id, ())):
                self._decode(sequence, builder, own)
        for sequence in self.promises.prompts(ready):
            self._prefill(sequence, builder)
        if self._waiting.number(is_background):
            waiting, is_stalled = self._waiting.in_turn(is_background), not (self._in_flight or builder.rows)
            if make_room(self._batch, waiting, lambda: self._admissions(is_background), is_stalled):
                waiting = self._waiting.in_turn(is_background)
            self._admit_waiting(waiting if is_background else self.promises.in_turn(waiting), builder, is_background)
        else:
            add_forks(speculation, self._batch, builder)

    def _decode(
        self, sequence: Sequence, builder: PlanBuilder, guesses: tuple[int, ...] = (), is_alone: bool = False
    ) -> None:
        """Adds a row for the next token, if the sequence has or gets a block for it, with guesses behind it as far as
        there are blocks that nobody waits for."""
        if sequence.status is not Status.RUNNING or not builder.budget:
            return
        if not self._batch.grow(sequence, sequence.computed + 1, is_alone):
            return
        if guesses:
            guesses = guesses[:self.memory.room(sequence, self.num_running)]
            self._batch.grow(sequence, sequence.computed + 1 + len(guesses))
        builder.add(sequence, decode_row(sequence, guesses))
        sequence.is_verifying = bool(guesses)

    def _prefill(self, sequence: Sequence, builder: PlanBuilder, is_alone: bool = False) -> None:
        """Adds a row for the next chunk: the rest of the budget, but at most half of the whole while others wait."""
        room = builder.budget if is_alone else self.promises.room(sequence, builder)
        if sequence.status is not Status.RUNNING or not room:
            return
        shares = not is_alone and others_wait(sequence, self._batch, self._waiting, self.suspects)
        most = min(room, builder.whole // 2) if shares else room
        end = sequence.prefill_end if builder.is_whole else min(sequence.prefill_end, sequence.computed + most)
        if not self._batch.grow(sequence, end, is_alone):
            return
        if sequence.is_traced:
            builder.chunks.append((sequence.id, sequence.computed, end - sequence.computed))
        builder.add(sequence, prefill_row(sequence, end))

    def _admit_waiting(self, waiting: Iterable[Sequence], builder: PlanBuilder, is_background: bool) -> None:
        """Lets waiting sequences of a class run, in turn, as far as there is room."""
        number = self._waiting.number(is_background)
        is_kept_out = is_background and any(self._waits.numbers[reason] for reason in KEEPS_BACKGROUND_OUT)
        if is_kept_out or not self._batch.free_slots:
            self._waits.hold(is_background, WaitReason.OTHERS if is_kept_out else WaitReason.SLOTS, number)
            return
        admissions = self._admissions(is_background)
        for index, sequence in enumerate(waiting):
            if (reason := admissions.obstacle_to_all(self.promises.room(sequence, builder))) is not None:
                self._waits.hold(is_background, reason, number - index)
                return
            if (reason := builder.obstacle_to(sequence) or admissions.obstacle_to(sequence)) is not None:
                self._waits.pass_by(sequence, reason)
                if reason is WaitReason.QUOTA:
                    self._waiting.shares.pass_tenant(sequence)
                continue
            assert sequence.matched is not None
            builder.admit(sequence, sequence.matched, self._batch)
            self.promises.admitted(sequence)
            self._prefill(sequence, builder)
            admissions.admitted(sequence)
        if index + 1 < number:  # the others of tenants that hold what they may
            self._waits.hold(is_background, WaitReason.QUOTA, number - index - 1)

    def _admissions(self, is_background: bool) -> AdmissionRound:
        return AdmissionRound(self._batch, self.suspects, self._background, is_background, self._batching)

    def _plan_alone(self, suspect: Sequence, builder: PlanBuilder) -> None:
        """Plans a step for a suspect alone, with no other row in it and no other step in flight."""
        batch = self._batch
        if self._in_flight:
            return
        if suspect.status is Status.WAITING:
            while (victim := adapter_victim(suspect, batch.running, self.adapters)) is not None:
                batch.evict(victim)
            if not self.adapters.is_loaded(suspect.adapter):
                return
            if not batch.free_slots:
                batch.evict(self._waiting.shares.last(batch.running))
            builder.admit(suspect, self._waiting.match(suspect), batch)
        if suspect.is_prefilling:
            self._prefill(suspect, builder, is_alone=True)
        else:
            self._decode(suspect, builder, is_alone=True)

    def commit(self, result: StepResult) -> list[Confirmed]:
        """Appends and returns the results of the oldest step in flight; drops those of sequences that ended since."""
        assert self._in_flight, f"result of step {result.step_id}, but none is in flight"
        step_id, rows, num_tokens = self._in_flight.popleft()
        assert result.step_id == step_id, f"result of step {result.step_id}, expected {step_id}"
        answers = result.by_slot()
        confirmed: list[Confirmed] = []
        shares = self._waiting.shares if self._waiting.shares.is_on else None
        self.ledger.open(result, num_tokens, len(rows))
        for sequence, row in rows:
            sequence.in_flight -= 1
            sequence.promised -= row.is_sampled
            row, answer = take_answer(sequence, row, answers)
            if sequence.status is not Status.FINISHED:
                self.ledger.charge(sequence, row, num_inputs := row.num_inputs)
                self.memory.confirm(sequence, row.start + num_inputs - row.num_guesses)
                if answer is not None:
                    own = take_in(sequence, row, answer, self._eos_token_ids, self.memory)
                    confirmed += own
                    if shares is not None:
                        shares.answered(sequence, own)
                    self._conclude(sequence, own[-1] if own else None)
            if sequence.forks:
                self._batch.drop_forks(sequence)
            if sequence.status is not Status.RUNNING:
                self._batch.release(sequence)
        assert not answers, f"results for slots {[*answers]}, of which no row was planned"
        return confirmed

    def _conclude(self, sequence: Sequence, last: Confirmed | None) -> None:
        """Lets a sequence that got tokens be no suspect any more, or end, if that is what the last of them means."""
        cleared_at = sequence.record.cleared_at
        if cleared_at is not None and len(sequence.tokens) + sequence.is_undecided >= cleared_at:
            self.suspects.clear(sequence)
        if isinstance(last, Sampled | Pooled) and last.finish_reason is not None:
            self.finish(sequence.id, last.finish_reason)

    def finish(self, sequence_id: int, reason: FinishReason) -> None:
        """Ends a sequence, which gets no more rows. Does nothing if it has ended."""
        if (sequence := self._sequences.pop(sequence_id, None)) is None:
            return
        self.promises.forget(sequence_id)
        if sequence.status is Status.WAITING:
            self._waiting.take(sequence)
        elif sequence.status is Status.RUNNING:
            self._batch.running.remove(sequence)
        self.suspects.clear(sequence)
        self.ledger.leave(sequence)
        if self._live_prefixes is not None:
            self._live_prefixes.remove(sequence_id)
        sequence.status, sequence.finish_reason = Status.FINISHED, reason
        self._batch.release(sequence)

    def fork(self, sequence: Sequence, parent_id: int) -> None:
        """Adds a sequence that has all tokens but the last of another one, and shares that one's namespace.

        It runs at once, with the blocks of the other one, if that runs, no step in flight names it, and there is room
        for both. If not, it waits, and computes what is not cached: nothing but its speed depends on it.
        """
        sequence.usage.lost(len(sequence.tokens) - 1)  # if it has to compute these, it is once more
        self.add(sequence)
        parent = self._sequences.get(parent_id)
        if parent is not None and not self.suspects.holds(sequence) and self._background.may_fork(parent):
            self._batch.admit_fork(sequence, parent)

    def extend(self, sequence_id: int, token_id: int) -> None:
        """Goes on with a beam behind one of the candidates of its next token."""
        sequence = self._sequences[sequence_id]
        assert sequence.is_undecided, f"sequence {sequence_id} has no candidates"
        sequence.tokens.append(token_id)
        sequence.is_undecided = False
        if sequence.status is Status.WAITING:
            self._waiting.extended(sequence)

    def accuse(self) -> None:
        """Suspects the sequences that the steps in flight name: the group has died, or hangs."""
        named = {s for _, rows, _ in self._in_flight for s, _ in rows if s.status is not Status.FINISHED}
        self.suspects.accuse(sorted(named, key=by_order))

    def forget_all(self, accuses: bool = True) -> Forgotten:
        """Lets all sequences wait again: the group is lost with every step in flight. Sequences in flight are
        suspected, unless it is known that no request is to blame. The prefix cache has blocks of results that came
        back; if the group lost its memory too, `resize` comes next."""
        if accuses:
            self.accuse()
        self._in_flight.clear()
        self._waits.plan()
        self._waits.hold_all(WaitReason.GROUP)
        self._next_step_id = 0
        lost = [s for s in self._sequences.values() if s.status is not Status.WAITING]
        for sequence in [*lost, *(s for s in self._batch.leaving if s.status is Status.FINISHED)]:
            sequence.in_flight = sequence.promised = 0
            if sequence.status is Status.RUNNING:
                sequence.wait_cause = Return.REPLAYED
                self._batch.preempt(sequence)
            else:
                self._batch.release(sequence)
        self._batch.cleared_slots.clear()
        self.memory.lose_moves()
        self.adapters.forget()
        given_up = [s for s in lost if s.record.num_solo_deaths >= MAX_SOLO_DEATHS]
        for sequence in given_up:
            self.finish(sequence.id, FinishReason.ERROR)
        return Forgotten(len({s.order for s in lost} - {s.order for s in given_up}), tuple(s.id for s in given_up))

    def resize(self, num_blocks: int) -> list[int]:
        """Takes an empty KV memory, perhaps of another size, in the place of the one before, while no sequence holds
        any of it, as after `forget_all`. Ends the sequences that do not fit any more; returns their ids."""
        assert not self.memory.num_held
        self.memory.resize(num_blocks)
        too_long = [s.id for s in self._waiting if s.least_length > self.memory.capacity]
        for sequence_id in too_long:
            self.finish(sequence_id, FinishReason.ERROR)
        return too_long

    def release(self, sequence_id: int) -> Released:
        """Ends a sequence here, since another group goes on with it; returns the parts that go there."""
        sequence = self._sequences[sequence_id]
        sequence.usage.lost(min(sequence.computed, len(sequence.tokens)))
        released = Released(sequence.age, sequence.tokens[sequence.prompt_length:], replace(sequence.record))
        self.finish(sequence_id, FinishReason.MOVED)
        return released

    def releasable(self, bound_too: bool) -> list[int]:
        """Returns the sequences that another group may run, in their order: those that were narrowed down as suspects
        are not among them, unless `bound_too`."""
        return [s.id for s in sorted(self._sequences.values(), key=by_order) if bound_too or not s.record.is_narrowed]

    def order_adapters(self, now: float = 0.0) -> AdapterOrders:
        """Says which adapters the shards are to load and unload next, for those that wait. `now` is in seconds."""
        self.adapters.now = now
        return self.adapters.orders(*(
            wanted_adapters(self.suspects.may_run(self._waiting.in_turn(is_background)), self.adapters, MAX_PASSED)
            for is_background in (False, True)))

    def observe(self, plan: Plan, result: StepResult) -> None:
        """Takes in how long a step took, from which the sizes of the next ones follow."""
        self.promises.pace.observe(plan.num_tokens)
        for each in (self.budget, self._background):
            each.observe(plan.num_tokens, result.draft_time + result.forward_time)
        if self.speculation is not None:
            self.speculation.observe(plan, result)

    def hit_blocks(self, namespace: str, tokens: Items[int]) -> int:
        """Returns how many blocks of a prompt are cached, or will be since another sequence has them, too."""
        coming = self._live_prefixes.match(namespace, tokens) if self._live_prefixes else 0
        return self.memory.hit_blocks(namespace, tokens, coming)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._batch.running)

    @property
    def occupancy(self) -> Occupancy:
        return occupancy_of(self._waiting, self._batch.running, self.memory, self.budget.tokens, self._waits.numbers)

    def load(self, is_background: bool) -> float:
        """Returns how much is to be done before one more sequence that is of the background, or not, in blocks."""
        return load_before(is_background, self._waiting, self._batch.running, self.memory)
