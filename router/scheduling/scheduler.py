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
from operator import attrgetter

from penstock.router.scheduling.adapter_turns import AdapterTurns, in_the_way, wanted
from penstock.router.scheduling.draft import Draft
from penstock.router.scheduling.fork import blocks_needed, make_fork, take_answer
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.plan import (
    Admission,
    Confirmed,
    FinishReason,
    Forgotten,
    Plan,
    Row,
    Sampled,
    StepResult,
)
from penstock.router.scheduling.prefix_cache import Node
from penstock.router.scheduling.residency import AdapterOrders, Residency
from penstock.router.scheduling.rows import decode_row, prefill_row, take_in
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.speculation import Speculation, sits_out
from penstock.router.scheduling.step_budget import GRAIN, StepBudget
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS, Suspects
from penstock.router.scheduling.turns import take_turn

_age = attrgetter("id")
MAX_PASSED = 64
"""How often younger sequences may be admitted before one that does not fit."""


class Scheduler:
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
        num_turns: int = 1,
    ) -> None:
        assert 0 < max_slots < max_step_tokens, "decode rows must leave room for a prefill"
        self.memory = KvMemory(block_size, num_blocks, shares_prefixes)
        self.speculation = speculation
        self.adapters = adapters or Residency()
        self.budget = budget or StepBudget(max_step_tokens, max_step_tokens, max_step_tokens)
        self._max_step_tokens, self._num_turns = max_step_tokens, num_turns
        self._eos_token_ids = frozenset(eos_token_ids)
        self._sequences: dict[int, Sequence] = {}
        self._waiting, self._running = list[Sequence](), list[Sequence]()
        self._returning: list[Sequence] = []
        self._suspects = Suspects()
        self._free_slots = list(range(max_slots - 1, -1, -1))
        self._cleared_slots, self._preempted = list[int](), list[int]()
        self._in_flight: deque[tuple[int, list[tuple[Sequence, Row]]]] = deque()
        self._next_step_id = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_wasted_positions(self) -> int:
        """How many positions have no token planned for them, in the blocks that running sequences hold."""
        return sum(len(s.blocks) * self.memory.block_size - s.computed for s in self._running)

    def add(self, sequence: Sequence) -> None:
        """Lets a new sequence wait. Its id is larger than that of any before it."""
        assert len(sequence.tokens) < min(sequence.max_length, self.memory.capacity)
        self._sequences[sequence.id] = sequence
        insort(self._waiting, sequence, key=_age)

    def plan(self) -> Plan | None:
        """Plans the next step; returns None when nothing can run. May preempt the youngest sequences."""
        draft = Draft(self._step_tokens)
        if suspect := self._suspects.alone:
            self._plan_alone(suspect, draft)
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
        sequence.status = Status.FINISHED
        sequence.finish_reason = reason
        self._settle(sequence)

    def forget_all(self) -> Forgotten:
        """Lets all sequences wait again: the group is lost with every step in flight. What the prefix cache has is of
        results that came back; if the group lost its memory too, `resize` comes next."""
        named = {s for _, rows in self._in_flight for s, _ in rows if s.status is not Status.FINISHED}
        self._suspects.accuse(sorted(named, key=_age))
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
        given_up = tuple(s.id for s in lost if s.num_solo_deaths >= MAX_SOLO_DEATHS)
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
        """Chooses which guesses to verify. They leave a token for each sequence, and half of the rest for prompts."""
        if self.speculation is None:
            return {}
        prompts = [s for s in ready if s.is_prefilling]
        if self.memory.num_available > len(self._running):
            prompts += self._waiting[:len(self._free_slots)]
        left = sum(max(s.prefill_end, len(s.tokens)) - s.computed for s in prompts)
        spare = draft.budget - len(ready)
        prompt_tokens = min(left, -(-spare // 2))
        return self.speculation.choose(self._running, spare - prompt_tokens, len(prompts), prompt_tokens)

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
        for sequence in list(self._waiting):
            if not self._free_slots or not draft.budget or reserve >= self.memory.num_available:
                return
            if self._suspects.holds(sequence) or not turns.admits(sequence):
                continue
            matched = self.memory.match(sequence)
            missing = self.memory.missing(sequence, matched)
            if missing is not None and missing in coming:
                continue
            if not self.memory.has_room(sequence, matched, reserve):
                if sequence.num_passed >= MAX_PASSED:
                    return
                passed.append(sequence)
                continue
            self._admit(sequence, matched, draft)
            turns.admitted(sequence)
            self._draft_prefill(sequence, draft)
            reserve += self.memory.reserve_of(sequence)
            coming.add(self.memory.coming(sequence))
            for older in passed:
                older.num_passed += 1
            if any(older.num_passed >= MAX_PASSED for older in passed):
                return

    def _admit(self, sequence: Sequence, matched: Node, draft: Draft) -> None:
        self._waiting.remove(sequence)
        sequence.status = Status.RUNNING
        sequence.slot = self._free_slots.pop()
        sequence.prefill_end = len(sequence.tokens)
        sequence.num_passed = 0
        self.memory.begin(sequence, matched)
        self.adapters.hold(sequence.adapter)
        insort(self._running, sequence, key=_age)
        draft.admitted.append(Admission(sequence.id, sequence.computed))

    def _grow(self, sequence: Sequence, length: int) -> bool:
        """Gives the sequence blocks for `length` tokens, and preempts the youngest sequences for that if need be.
        Returns whether the sequence has them; if not, it sits this step out."""
        needed = self.memory.blocks_for(length) - len(sequence.blocks)
        if needed <= 0:
            return True
        while needed > self.memory.num_available:
            if needed <= self.memory.num_available + sum(s.num_blocks_forked for s in self._running) + sum(
                    s.num_blocks_held for s in self._returning):
                return False  # it waits for the steps in flight
            # A suspect that runs alone has to run next, whatever its age.
            victim = next(s for s in reversed(self._running) if s is not sequence or s is not self._suspects.alone)
            self._evict(victim)
            if victim is sequence:
                return False
        self.memory.extend(sequence, needed)
        return True

    def _evict(self, victim: Sequence) -> None:
        """Preempts a sequence for the sake of another, and lets the next plan tell. Its slot and its blocks are free
        at once if no step in flight names it."""
        self._preempt(victim)
        self._preempted.append(victim.id)

    def _preempt(self, sequence: Sequence) -> None:
        """Stops a sequence; once no step names it, it waits again, to be computed from the start."""
        self._running.remove(sequence)
        sequence.status = Status.DRAINING
        self._settle(sequence)

    def _conclude(self, sequence: Sequence, last: Confirmed | None) -> None:
        """Lets a sequence that got tokens be no suspect any more, or end, if that is what the last of them means."""
        if sequence.cleared_at is not None and len(sequence.tokens) >= sequence.cleared_at:
            self._suspects.clear(sequence)
        if isinstance(last, Sampled) and last.finish_reason is not None:
            self.finish(sequence.id, last.finish_reason)

    def _settle(self, sequence: Sequence) -> None:
        """Takes back blocks and slot of a sequence that gets no more rows, once no step in flight names it."""
        if sequence in self._returning:
            self._returning.remove(sequence)
        if sequence.in_flight:
            self._returning.append(sequence)
            return
        self._release_forks(sequence)
        if sequence.slot is not None:
            self.memory.release(sequence)
            self.adapters.release(sequence.adapter)
            self._release_slot(sequence.slot)
        sequence.slot = None
        sequence.is_verifying = False
        sequence.computed = sequence.num_blocks_sent = sequence.prefill_end = 0
        if sequence.status is Status.DRAINING:
            sequence.status = Status.WAITING
            insort(self._waiting, sequence, key=_age)

    def _release_forks(self, sequence: Sequence) -> None:
        """Takes back what the forks of a sequence hold, whose step is back or lost."""
        while sequence.forks:
            fork = sequence.forks.pop()
            self.memory.cache.release(fork.blocks)
            self._release_slot(fork.slot)

    def _release_slot(self, slot: int) -> None:
        self._free_slots.append(slot)
        self._cleared_slots.append(slot)
