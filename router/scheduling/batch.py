"""The batch: the sequences that have a slot, with the blocks of memory and the adapters that they hold."""

from penstock.contract.block_copy import BlockCopy
from penstock.router.scheduling.arrival import Arrival
from penstock.router.scheduling.cached_block import Node
from penstock.router.scheduling.fork import Fork
from penstock.router.scheduling.in_order import by_order, put_in
from penstock.router.scheduling.kv_quota import KvUse
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.suspects import Suspects
from penstock.router.scheduling.waiting import Waiting
from penstock.router.scheduling.waits import Return


class Batch:
    """Lets sequences in, gives them blocks, and lets them out. Slots and blocks are taken and given back nowhere else.

    One that gets no more rows leaves once no step in flight names it: for good, or, if it was preempted, to the
    sequences that are `waiting`.
    """

    def __init__(self, waiting: Waiting, max_slots: int, memory: KvMemory, adapters: Residency) -> None:
        self.waiting = waiting
        self.running: list[Sequence] = []
        """Those that get rows, in their order."""
        self.leaving: list[Sequence] = []
        """Those that get no more rows, and that a step in flight names."""
        self.num_slots = max_slots
        self.free_slots = list(range(max_slots - 1, -1, -1))
        self.cleared_slots: list[int] = []
        """Those that were left since the last plan."""
        self.preempted: list[int] = []
        """The sequences that had to let go of their blocks since the last plan."""
        self.memory = memory
        self.adapters = adapters
        self.kv_use = KvUse(memory)
        self._counted_at, self._kept = (-1, 0), (0, 0)
        self._copies: dict[Sequence, BlockCopy] = {}
        """The copies that are still to be made for sequences that began as forks. The source is held until then."""

    def note_arrival(self, sequence: Sequence) -> None:
        """Notes the crowd that a sequence finds here before it is put among those that wait, the first of its
        request."""
        if sequence.usage.arrival is None:
            sequence.usage.arrival = self._found_by(sequence)

    def _found_by(self, sequence: Sequence) -> Arrival:
        memory, waiting, adapters = self.memory, self.waiting, self.adapters
        num_before, own = waiting.num_before(sequence), len(sequence.tokens)
        left = waiting.num_left(sequence.is_background)
        # Each that waits may begin a block more than its tokens fill together, and keeps one more to grow.
        reserve, prompts = self._kept_for_running()
        blocks = memory.num_held + memory.blocks_for(left) + 2 * num_before + memory.blocks_for(own) + reserve
        is_ready = adapters.is_loaded(sequence.adapter)
        return Arrival(
            num_before=num_before, num_running=len(self.running), num_slots=self.num_slots,
            slots_needed=self.num_slots - len(self.free_slots) + num_before + 1,
            num_blocks=memory.pool.num_blocks, num_held=memory.num_held,
            blocks_needed=0 if memory.is_whole else blocks,
            step_tokens_needed=len(self.running) + prompts + left + own,
            adapter_budget=adapters.budget,
            adapters_needed=0 if is_ready else adapters.bytes_with([sequence.adapter, *waiting.adapters]))

    def _kept_for_running(self) -> tuple[int, int]:
        """Returns how many blocks are to be kept for those that run, and how many tokens their prompts have left. That
        is counted once between two plans, when thousands may come."""
        plan = self.waiting.waits.num_plans, len(self.running)
        if self._counted_at != plan:
            self._counted_at = plan
            self._kept = (sum([self.memory.reserve_of(each) for each in self.running]),
                          sum([max(0, each.prefill_end - each.computed) for each in self.running]))
        return self._kept

    @property
    def is_empty(self) -> bool:
        """Whether no sequence has a slot."""
        return not self.running and not self.leaving

    def is_able(self, sequence: Sequence, suspects: Suspects) -> bool:
        """Tells whether a waiting sequence would run if it had a slot and memory."""
        is_held = suspects.holds(sequence) or sequence.is_undecided
        return not is_held and self.kv_use.has_room(sequence) and self.adapters.is_loaded(sequence.adapter)

    def first_without_promise(self, suspects: Suspects) -> Sequence | None:
        """Returns the first of those that are able to run and have no promise. Where tenants have their turns it looks
        at few of each: one that holds what it may is passed by."""
        found = []
        for queue in self.waiting.queues():
            for each in queue:
                if each.is_background or not self.kv_use.has_room(each):
                    break
                if not each.has_promise and self.is_able(each, suspects):
                    found.append(each)
                    break
        return min(found, key=by_order, default=None)

    def admit(self, sequence: Sequence, matched: Node) -> None:
        """Lets a waiting sequence run behind the cached blocks that it was matched with. There is a slot for it."""
        self.waiting.take(sequence)
        self.memory.begin(sequence, matched)
        self._enter(sequence, self.free_slots.pop())

    def admit_fork(self, sequence: Sequence, parent: Sequence) -> bool:
        """Lets a waiting sequence run that has all tokens but the last of another one, behind which it begins. Returns
        whether the state of the other one and the free room allow it."""
        is_settled = parent.status is Status.RUNNING and not parent.in_flight and not parent.is_prefilling
        if not is_settled or not self.memory.shares_prefixes or sequence.needs_all_tokens:
            return False
        assert sequence.tokens[:parent.computed] == parent.tokens[:parent.computed], "a fork has other tokens"
        fork = self.fork(parent, len(sequence.tokens) - len(parent.tokens))
        if fork is None:
            return False
        self.waiting.take(sequence)
        self.memory.begin_fork(sequence, parent, fork)
        for copy in fork.copies:
            self.memory.pool.hold([copy.source])
            self._copies[sequence] = copy
        self._enter(sequence, fork.slot)
        return True

    def _enter(self, sequence: Sequence, slot: int) -> None:
        sequence.status = Status.RUNNING
        sequence.slot = slot
        sequence.prefill_end = len(sequence.tokens)
        sequence.num_passed = 0
        self.adapters.hold(sequence.adapter, sequence.is_background)
        put_in(self.running, sequence)
        if sequence.tenant or self.waiting.shares.is_on:
            self.waiting.shares.admitted(sequence)
            self.kv_use.count(sequence, 1)

    def grow(self, sequence: Sequence, length: int, is_alone: bool = False) -> bool:
        """Gives the sequence blocks for `length` tokens, and preempts the last sequences for that if need be: also
        itself, unless it has to run alone. Returns whether it has the blocks; if not, it sits this step out."""
        memory = self.memory
        if length <= len(sequence.blocks) * memory.block_size:
            return True
        needed = memory.blocks_for(length) - len(sequence.blocks)
        while needed > memory.num_available:
            if needed <= self.num_blocks_coming:
                return False  # it waits for the steps in flight
            victim = self._last(without=sequence if is_alone else None)
            self.evict(victim)
            if victim is sequence:
                return False
        memory.extend(sequence, needed)
        return True

    def _last(self, without: Sequence | None) -> Sequence:
        """Returns the last that runs but one: of those without a promise, if there is any."""
        others = [each for each in self.running if each is not without]
        return self.waiting.shares.last([each for each in others if not each.has_promise] or others)

    @property
    def num_blocks_coming(self) -> int:
        """How many blocks can be given out once all steps in flight are back."""
        return self.memory.num_available + sum(s.num_blocks_forked for s in self.running) + sum(
            s.num_blocks_held for s in self.leaving)

    @property
    def num_slots_coming(self) -> int:
        """How many slots are free once all steps in flight are back."""
        return len(self.free_slots) + len(self.leaving) + sum(len(s.forks) for s in (*self.running, *self.leaving))

    def evict(self, victim: Sequence) -> None:
        """Preempts a sequence for the sake of another, and lets the next plan tell. Its slot and its blocks are free
        at once if no step in flight names it."""
        victim.wait_cause = Return.PREEMPTED
        self.preempt(victim)
        self.preempted.append(victim.id)

    def preempt(self, sequence: Sequence) -> None:
        """Stops a sequence; once no step names it, it waits again, to be computed from the start."""
        self.running.remove(sequence)
        sequence.status = Status.DRAINING
        self.release(sequence)

    def release(self, sequence: Sequence) -> None:
        """Takes back blocks and slot of a sequence that gets no more rows, once no step in flight names it."""
        if sequence in self.leaving:
            self.leaving.remove(sequence)
        if sequence.in_flight:
            self.leaving.append(sequence)
            return
        self.drop_forks(sequence)
        if sequence.slot is not None:
            sequence.usage.lost(min(sequence.computed, len(sequence.tokens)))
            if (copy := self._copies.pop(sequence, None)) is not None:
                self.memory.cache.release([copy.source])
            self.memory.release(sequence)
            if sequence.tenant:
                self.kv_use.count(sequence, -1)
            self.adapters.release(sequence.adapter, sequence.is_background)
            self._clear(sequence.slot, is_known=sequence.is_told)
        sequence.slot = None
        sequence.is_verifying = sequence.is_told = False
        sequence.computed = sequence.num_blocks_sent = sequence.prefill_end = 0
        if sequence.status is Status.DRAINING:
            sequence.status = Status.WAITING
            self.waiting.add(sequence)

    def fork(self, sequence: Sequence, num_more: int) -> Fork | None:
        """Takes a slot and blocks for another way on from a sequence's last token, which no step in flight computes,
        with `num_more` tokens behind it. None: these are not free, or sequences that run may need them next."""
        number = self.memory.blocks_to_fork(sequence, num_more)
        if not self.free_slots or number > self.memory.num_available - len(self.running):
            return None
        return self.memory.fork(sequence, number, self.free_slots.pop())

    def drop_forks(self, sequence: Sequence) -> None:
        """Takes back the slots and blocks of a sequence's forks, whose step is back or lost."""
        while sequence.forks:
            fork = sequence.forks.pop()
            self.memory.cache.release(fork.blocks)
            self._clear(fork.slot)

    def _clear(self, slot: int, is_known: bool = True) -> None:
        self.free_slots.append(slot)
        if is_known:  # to the shards, for a plan has named it
            self.cleared_slots.append(slot)

    def take_copies(self) -> list[BlockCopy]:
        """Returns the copies that the next plan must order for sequences that began as forks."""
        copies = [*self._copies.values()]
        if copies:
            self.memory.cache.release([copy.source for copy in copies])
            self._copies.clear()
        return copies
