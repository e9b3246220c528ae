"""The scheduler decides which tokens of which sequences the next step computes, and in which blocks.

It batches continuously over a token budget: decode rows come first, then running prefills, then waiting sequences,
each oldest first; prefills are cut to what is left of the budget and share a step with decode rows. The budget follows
how long steps take (`step_budget.py`). Blocks are allocated as sequences grow. When none is left the youngest running
sequence is preempted: it lets go of its blocks and waits under its old arrival number, to be computed again with prompt
and output as its input. So do all sequences when the group dies; `suspects.py` finds the one that kills it.

*Finish* and *release* are two moments: a step in flight may still name a sequence that has ended, so its blocks
and its slot return when no step does, by one path (`_settle`).
"""

from bisect import insort
from collections import deque
from collections.abc import Collection
from collections.abc import Sequence as Items
from dataclasses import replace

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.adapter_turns import AdapterTurns, in_the_way, wanted
from penstock.router.scheduling.confirmed import Confirmed, Forgotten, Sampled
from penstock.router.scheduling.death_record import Released
from penstock.router.scheduling.draft import Draft
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.forking import blocks_needed, make_fork, take_answer
from penstock.router.scheduling.live_prefixes import LivePrefixes
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.places import Places, by_age
from penstock.router.scheduling.prefix_cache import Key, Node
from penstock.router.scheduling.residency import AdapterOrders, Residency
from penstock.router.scheduling.rows import decode_row, prefill_row, take_in
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.speculation import Speculation, sits_out
from penstock.router.scheduling.step_budget import GRAIN, StepBudget
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS
from penstock.router.scheduling.turns import take_turn
from penstock.router.scheduling.waits import Wait

MAX_PASSED = 64
"""How often younger sequences may be admitted before one that does not fit."""


class Scheduler(Places):
    """Has the verbs `add`, `plan`, `commit`, `finish` and `forget_all`, which take and return plain numbers.

    At most `max_slots` sequences run at once and a step computes at most `max_step_tokens`, or as many as are in
    `budget`, if it is given. With `speculation`, steps verify guesses of the next tokens. A sequence that fills all of
    the memory, though its `max_length` is more, ends there with an error. Sequences share the blocks of equal prefixes,
    unless the model carries a state beside them (`shares_prefixes`). One that needs an adapter waits until `adapters`
    has it loaded. With `num_turns`, sequences decode in turns (`turns.py`).
    """

    def __init__(
        self,
        *,
        block_size: int,
        num_blocks: int,
        max_slots: int,
        max_step_tokens: int,
        budget: StepBudget | None = None,
        eos_token_ids: Collection[int] = (),
        shares_prefixes: bool = True,
        speculation: Speculation | None = None,
        adapters: Residency | None = None,
        knows_live_prefixes: bool = False,
        num_turns: int = 1,
    ) -> None:
        assert 0 < max_slots < max_step_tokens, "decode rows must leave room for a prefill"
        super().__init__(KvMemory(block_size, num_blocks, shares_prefixes), max_slots, adapters or Residency(),
                         budget or StepBudget(max_step_tokens, max_step_tokens, max_step_tokens))
        self.speculation = speculation
        self._max_step_tokens, self._num_turns = max_step_tokens, num_turns
        self._eos_token_ids = frozenset(eos_token_ids)
        self._sequences: dict[int, Sequence] = {}
        self._live_prefixes = LivePrefixes(block_size) if knows_live_prefixes else None
        self._in_flight: deque[tuple[int, list[tuple[Sequence, Row]]]] = deque()
        self._next_step_id = 0

    @property
    def has_trial(self) -> bool:
        """Whether suspects that were narrowed down run, or are about to."""
        return self._suspects.are_on_trial

    def hit_blocks(self, namespace: str, tokens: Items[int]) -> int:
        """Returns how many blocks of a prompt are cached, or will be since another sequence has them, too."""
        most = (len(tokens) - 1) // self.memory.block_size if self.memory.shares_prefixes else 0
        return min(most, max(self.memory.cache.match(namespace, tokens, most).depth,
                             self._live_prefixes.match(namespace, tokens) if self._live_prefixes else 0))

    def add(self, sequence: Sequence) -> None:
        """Lets a sequence wait, by its age. One that another group ran before may be suspected of its death."""
        assert len(sequence.tokens) < min(sequence.max_length, self.memory.capacity)
        self._sequences[sequence.id] = sequence
        insort(self._waiting, sequence, key=by_age)
        if self._live_prefixes is not None:
            self._live_prefixes.add(sequence.id, sequence.namespace, sequence.tokens)
            self.memory.match(sequence)
        if sequence.is_suspect:
            self._suspects.adopt(sequence)

    def release(self, sequence_id: int) -> Released:
        """Ends a sequence here, since another group goes on with it; returns what goes there."""
        sequence = self._sequences[sequence_id]
        released = Released(sequence.age, sequence.tokens[sequence.prompt_length:], replace(sequence.record))
        self.finish(sequence_id, FinishReason.MOVED)
        return released

    def releasable(self, bound_too: bool) -> list[int]:
        """Returns the sequences that another group may run, the oldest first: those that were narrowed down as suspects
        are not among them, unless `bound_too`."""
        return [s.id for s in sorted(self._sequences.values(), key=by_age) if bound_too or not s.record.is_narrowed]

    def plan(self) -> Plan | None:
        """Plans the next step; returns None when nothing can run. May preempt the youngest sequences."""
        draft, self._waits = Draft(self._step_tokens), {}
        if suspect := self._suspects.alone:
            self._plan_alone(suspect, draft)
            self._keep_waiting(Wait.SUSPECT, self.num_waiting)
        else:
            self._plan_all(draft)
        if not draft.rows:
            return None
        plan = draft.plan(self._next_step_id, self._cleared_slots, self._preempted)
        self._in_flight.append((plan.step_id, draft.rows))
        self._cleared_slots, self._preempted = [], []
        self._next_step_id += 1
        return plan

    def order_adapters(self) -> AdapterOrders:
        """Says which adapters the shards are to load and unload next, for the sequences that wait."""
        return self.adapters.orders(wanted(self._suspects.may_run(self._waiting), self.adapters, MAX_PASSED))

    @property
    def _step_tokens(self) -> int:
        """How many tokens the next step may have: also room for a chunk beside a row of each sequence that runs."""
        return min(max(self.budget.tokens, len(self._running) + GRAIN), self._max_step_tokens)

    def _plan_all(self, draft: Draft) -> None:
        ready = take_turn(self._running, self._num_turns, bool(self._waiting and self._free_slots))
        guesses = self._choose_guesses(ready, draft)
        for sequence in ready:
            if sequence.wants_decode and not sits_out(sequence, own := guesses.get(sequence.id, ())):
                self._draft_decode(sequence, draft, own)
        for sequence in ready:
            if sequence.is_prefilling:
                self._draft_prefill(sequence, draft)
        if self._waiting and self._free_slots:
            self._admit_waiting(draft)
        elif self._waiting:
            self._keep_waiting(Wait.SLOTS, self.num_waiting)
        elif self.speculation is not None and self._free_slots:
            for sequence, other in self.speculation.choose_forks(draft.rows, draft.budget):
                needed = blocks_needed(sequence, len(other.token_ids), self.memory)
                if self._free_slots and needed <= self.memory.num_available - len(self._running):
                    draft.add_fork(sequence, make_fork(sequence, other, self._free_slots.pop(), self.memory))

    def _plan_alone(self, suspect: Sequence, draft: Draft) -> None:
        """Plans a step for a suspect alone, with no other row in it and no other step in flight."""
        if self._in_flight:
            return
        if suspect.status is Status.WAITING:
            while (victim := in_the_way(suspect, self._running, self.adapters)) is not None:
                self._evict(victim)
            if not self.adapters.is_loaded(suspect.adapter):
                return
            if not self._free_slots:
                self._evict(self._running[-1])
            self._admit(suspect, self.memory.match(suspect), draft)
        if suspect.is_prefilling:
            self._draft_prefill(suspect, draft)
        else:
            self._draft_decode(suspect, draft)

    def commit(self, result: StepResult) -> list[Confirmed]:
        """Appends and returns what the oldest step in flight yielded; drops what is of sequences that ended since."""
        assert self._in_flight, f"result of step {result.step_id}, but none is in flight"
        step_id, rows = self._in_flight.popleft()
        assert result.step_id == step_id, f"result of step {result.step_id}, expected {step_id}"
        answers = result.by_slot()
        confirmed: list[Confirmed] = []
        for sequence, row in rows:
            sequence.in_flight -= 1
            sequence.promised -= row.is_sampled
            row, answer = take_answer(sequence, row, answers)
            if sequence.status is not Status.FINISHED:
                self.memory.confirm(sequence, row.start + row.num_inputs - row.num_guesses)
                if answer is not None:
                    own = take_in(sequence, row, answer, self._eos_token_ids, self.memory)
                    confirmed += own
                    self._conclude(sequence, own[-1] if own else None)
            if sequence.forks:
                self._release_forks(sequence)
            if sequence.status is not Status.RUNNING:
                self._settle(sequence)
        assert not answers, f"results for slots {[*answers]}, of which no row was planned"
        return confirmed

    def observe(self, plan: Plan, result: StepResult) -> None:
        """Takes in how long a step took, from which the sizes of the next ones follow."""
        self.budget.observe(plan.num_tokens, result.draft_time + result.forward_time)
        if self.speculation is not None:
            self.speculation.observe(plan, result)

    def finish(self, sequence_id: int, reason: FinishReason) -> None:
        """Ends a sequence, which gets no more rows. Does nothing if it has ended."""
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is None:
            return
        if sequence.status is Status.WAITING:
            self._waiting.remove(sequence)
        elif sequence.status is Status.RUNNING:
            self._running.remove(sequence)
        self._suspects.clear(sequence)
        if self._live_prefixes is not None:
            self._live_prefixes.remove(sequence_id)
        sequence.status = Status.FINISHED
        sequence.finish_reason = reason
        self._settle(sequence)

    def accuse(self) -> None:
        """Suspects what the steps in flight name: the group has died, or hangs."""
        named = {s for _, rows in self._in_flight for s, _ in rows if s.status is not Status.FINISHED}
        self._suspects.accuse(sorted(named, key=by_age))

    def forget_all(self, accuses: bool = True) -> Forgotten:
        """Lets all sequences wait again: the group is lost with every step in flight. What was in flight is suspected,
        unless it is known that no request is to blame. What the prefix cache has is of results that came back; if the
        group lost its memory too, `resize` comes next."""
        if accuses:
            self.accuse()
        self._in_flight.clear()
        self._next_step_id = 0
        lost = [s for s in self._sequences.values() if s.status is not Status.WAITING]
        for sequence in [*lost, *(s for s in self._returning if s.status is Status.FINISHED)]:
            sequence.in_flight = sequence.promised = 0
            if sequence.status is Status.RUNNING:
                self._preempt(sequence)
            else:
                self._settle(sequence)
        self._cleared_slots.clear()
        self.adapters.forget()
        given_up = tuple(s.id for s in lost if s.record.num_solo_deaths >= MAX_SOLO_DEATHS)
        for sequence_id in given_up:
            self.finish(sequence_id, FinishReason.ERROR)
        return Forgotten(len(lost) - len(given_up), given_up)

    def resize(self, num_blocks: int) -> list[int]:
        """Takes an empty KV memory, perhaps of another size, in the place of the one before, while no sequence holds
        any of it, as after `forget_all`. Ends the sequences that do not fit any more; returns their ids."""
        assert not self.memory.num_held
        self.memory = KvMemory(self.memory.block_size, num_blocks, self.memory.shares_prefixes)
        too_long = [s.id for s in self._waiting if len(s.tokens) >= self.memory.capacity]
        for sequence_id in too_long:
            self.finish(sequence_id, FinishReason.ERROR)
        return too_long

    def _choose_guesses(self, ready: Collection[Sequence], draft: Draft) -> dict[int, tuple[int, ...]]:
        """Chooses which guesses to verify. They leave a token for each sequence."""
        if self.speculation is None:
            return {}
        prompts = [s for s in ready if s.is_prefilling]
        if self.memory.num_available > len(self._running):
            prompts += self._waiting[:len(self._free_slots)]
        return self.speculation.choose_beside(self._running, prompts, draft.budget - len(ready))

    def _draft_decode(self, sequence: Sequence, draft: Draft, guesses: tuple[int, ...] = ()) -> None:
        """Drafts a row for the next token, if the sequence has or gets a block for it, with guesses behind it as far as
        there are blocks that nobody waits for."""
        if sequence.status is not Status.RUNNING or not draft.budget:
            return
        if not self._grow(sequence, sequence.computed + 1):
            return
        if guesses:
            guesses = guesses[:self.memory.room(sequence, len(self._running))]
            self._grow(sequence, sequence.computed + 1 + len(guesses))
        self._draft(draft, sequence, decode_row(sequence, guesses))
        sequence.is_verifying = bool(guesses)

    def _draft_prefill(self, sequence: Sequence, draft: Draft) -> None:
        """Drafts a row for the next chunk: the rest of the budget, but at most half of the whole while others wait."""
        if sequence.status is not Status.RUNNING or not draft.budget:
            return
        most = min(draft.budget, draft.whole // 2) if self._others_wait(sequence) else draft.budget
        start, end = sequence.computed, min(sequence.prefill_end, sequence.computed + most)
        if not self._grow(sequence, end):
            return
        if sequence.trace:
            draft.chunks.append((sequence.id, start, end - start))
        self._draft(draft, sequence, prefill_row(sequence, end))

    def _others_wait(self, sequence: Sequence) -> bool:
        """Tells whether others could compute a prompt with what the sequence leaves of the budget."""
        if sequence is self._suspects.alone:
            return False
        could_admit = self._free_slots and not all(
            self._suspects.holds(s) or not self.adapters.is_loaded(s.adapter) for s in self._waiting)
        return bool(could_admit) or any(s.is_prefilling for s in self._running if s is not sequence)

    def _draft(self, draft: Draft, sequence: Sequence, row: Row) -> None:
        draft.add(sequence, row)
        sequence.computed += row.num_inputs
        sequence.num_blocks_sent += len(row.new_blocks)
        sequence.promised += row.is_sampled
        sequence.in_flight += 1

    def _admit_waiting(self, draft: Draft) -> None:
        """Lets waiting sequences run, oldest first, if there are blocks for all their tokens and, for each sequence
        that runs, one more to grow.

        A sequence whose next block is being computed by a running one waits for that block, and then shares it.
        """
        reserve = sum(self.memory.reserve_of(s) for s in self._running)
        coming = {self.memory.coming(s) for s in self._running}
        passed: list[Sequence] = []
        turns = AdapterTurns(self.adapters, MAX_PASSED)
        waiting, is_overdue = list(self._waiting), False
        for index, sequence in enumerate(waiting):
            reason = Wait.MEMORY if is_overdue else self._obstacle_to_all(draft, reserve)
            if reason is not None:
                self._keep_waiting(reason, len(waiting) - index)
                return
            if (reason := self._obstacle(sequence, turns, coming, reserve)) is not None:
                self._keep_waiting(reason)
                if reason is Wait.MEMORY:
                    is_overdue = sequence.num_passed >= MAX_PASSED
                    passed.append(sequence)
                continue
            assert sequence.matched is not None
            self._admit(sequence, sequence.matched, draft)
            turns.admitted(sequence)
            self._draft_prefill(sequence, draft)
            reserve += self.memory.reserve_of(sequence)
            coming.add(self.memory.coming(sequence))
            for older in passed:
                older.num_passed += 1
            is_overdue = any(older.num_passed >= MAX_PASSED for older in passed)

    def _obstacle_to_all(self, draft: Draft, reserve: int) -> Wait | None:
        """Says what keeps all sequences that wait from running, if anything does."""
        if not self._free_slots:
            return Wait.SLOTS
        if not draft.budget:
            return Wait.BUDGET
        return Wait.MEMORY if reserve >= self.memory.num_available else None

    def _obstacle(
        self, sequence: Sequence, turns: AdapterTurns, coming: Collection[tuple[Node, Key] | None], reserve: int
    ) -> Wait | None:
        """Says what keeps a sequence from running, if anything does; if not, it is matched with the prefix cache."""
        if self._suspects.holds(sequence):
            return Wait.SUSPECT
        if not turns.admits(sequence):
            return Wait.ADAPTER
        matched = self.memory.match(sequence)
        missing = self.memory.missing(sequence, matched)
        if missing is not None and missing in coming:
            return Wait.PREFIX
        return None if self.memory.has_room(sequence, matched, reserve) else Wait.MEMORY

    def _conclude(self, sequence: Sequence, last: Confirmed | None) -> None:
        """Lets a sequence that got tokens be no suspect any more, or end, if that is what the last of them means."""
        cleared_at = sequence.record.cleared_at
        if cleared_at is not None and len(sequence.tokens) >= cleared_at:
            self._suspects.clear(sequence)
        if isinstance(last, Sampled) and last.finish_reason is not None:
            self.finish(sequence.id, last.finish_reason)
