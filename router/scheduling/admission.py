"""Who of the waiting sequences may begin to run."""

from collections.abc import Sequence as Items

from penstock.router.scheduling.adapter_fairness import AdapterFairness
from penstock.router.scheduling.background import Background
from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.batching import Batching
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.suspects import Suspects
from penstock.router.scheduling.wait_reasons import WaitReason

MAX_PASSED = 64
"""How often later sequences may be admitted before one that does not fit."""
KEPT_FOR_GROWTH = 2
"""One of the background begins only where this many times the blocks that are kept for others stay free: it grows, and
would be preempted as soon as it takes some of those."""


class AdmissionRound:
    """Says in one plan what keeps waiting sequences from running; asked in their order.

    A sequence runs if there are blocks for all its tokens and, for each sequence that runs, one more to grow. One whose
    next block is being computed by a running sequence waits for that block, and then shares it. One that finds no
    memory is passed by later ones, `MAX_PASSED` times at most, unless it is of the background and would find none even
    if nobody else of it ran. `batching` says whether any may join the batch. Those of
    the background have a round of their own, in which a part of slots and blocks is not to be had. Its blocks have been
    taken from it before the others' round, where others need them.
    """

    def __init__(
        self, batch: Batch, suspects: Suspects, background: Background, is_of_background: bool, batching: Batching
    ) -> None:
        self._batch, self._suspects, self._batching = batch, suspects, batching
        memory = self._memory = batch.memory
        self._background = background if is_of_background else None
        self._reserve = sum(memory.reserve_of(s) for s in batch.running if is_of_background or not s.is_background)
        if is_of_background:
            self._reserve += self._kept_for_others
        # Others wait for no block of the background, which hardly comes on beside them: they compute it themselves.
        self._coming = {memory.coming(s) for s in batch.running
                        if not s.is_undecided and (is_of_background or not s.is_background)}
        self._adapters = AdapterFairness(batch.adapters, MAX_PASSED)
        self._passed: list[Sequence] = []
        self.is_overdue = False
        """Whether one that finds no memory was passed so often that no younger one may run."""

    def obstacle_to_all(self, budget: int) -> WaitReason | None:
        """Says what keeps all that were not asked about yet from running, if anything does."""
        if self.is_overdue:
            return WaitReason.MEMORY
        if not self._batch.free_slots:
            return WaitReason.SLOTS
        if self._background is not None and not self._background.has_slot:
            return WaitReason.OTHERS
        if not budget:
            return WaitReason.BUDGET
        if self._reserve >= self._memory.num_available and not self._memory.is_whole:
            self._batching.seal()
            return WaitReason.MEMORY
        return None

    def obstacle_to(self, sequence: Sequence) -> WaitReason | None:
        """Says what keeps a sequence from running, if anything does; if not, it is matched with the prefix cache."""
        if sequence.is_undecided:
            return WaitReason.BEAM
        if self._suspects.holds(sequence):
            return WaitReason.SUSPECT
        if not self._batching.may_join(sequence, self._batch):
            return WaitReason.SLOTS
        if sequence.adapter and not self._adapters.admits(sequence):
            return WaitReason.ADAPTER
        if sequence.tenant and not self._batch.kv_use.has_room(sequence):
            return WaitReason.QUOTA
        matched = self._batch.waiting.match(sequence)
        missing = self._memory.missing(sequence, matched)
        if missing is not None and missing in self._coming:
            return WaitReason.PREFIX
        if self._memory.has_room(sequence, matched, self._reserve):
            return None
        self._batching.seal()
        if not (sequence.num_passed >= MAX_PASSED and not self._may_fit(sequence)):
            self._passed.append(sequence)
            self.is_overdue = sequence.num_passed >= MAX_PASSED
        return WaitReason.MEMORY

    @property
    def _kept_for_others(self) -> int:
        """How many blocks stay free as one of the background begins."""
        assert self._background is not None
        kept = KEPT_FOR_GROWTH * self._background.kept_blocks if self._batch.running else 0
        return kept + self._background.due_blocks

    def _may_fit(self, sequence: Sequence) -> bool:
        """Tells whether there would be room for a waiting sequence if all those of its class let go of theirs. The
        background's others may be there for ever, and one that does not fit beside them keeps none from running."""
        if self._background is None:
            return True
        memory = self._memory
        held = sum(len(each.blocks) + memory.reserve_of(each) for each in self._batch.running if not each.is_background)
        needed = memory.blocks_for(len(sequence.tokens))
        return needed <= memory.pool.num_blocks - held - self._kept_for_others

    def would_have_room(self, sequence: Sequence, undecided: Items[Sequence]) -> bool:
        """Tells whether there would be blocks for a waiting sequence if undecided beams let go of all that they have
        alone. Where they share blocks with it as well it may have fewer than is said."""
        memory, batch = self._memory, self._batch
        kept = {block for each in (*batch.running, *batch.leaving) if each not in undecided for block in each.blocks}
        num_freed = len({block for each in undecided for block in each.blocks} - kept)
        reserve = self._reserve - sum(map(memory.reserve_of, undecided))
        missing = memory.blocks_for(len(sequence.tokens)) - batch.waiting.match(sequence).on_device().depth
        return memory.num_available + num_freed - reserve >= missing

    def admitted(self, sequence: Sequence) -> None:
        """Takes in that a sequence runs, with its first row, and has passed by older ones."""
        self._batching.joined(sequence)
        self._reserve += self._memory.reserve_of(sequence)
        self._coming.add(self._memory.coming(sequence))
        if sequence.adapter:
            self._adapters.admitted()
        if self._passed:
            for older in self._passed:
                older.num_passed += 1
            self.is_overdue = any(older.num_passed >= MAX_PASSED for older in self._passed)


def others_wait(sequence: Sequence, batch: Batch, waiting: Items[Sequence], suspects: Suspects) -> bool:
    """Tells whether others of a sequence's class could compute a prompt with what it leaves of a step's budget. One
    that has a promise leaves nothing."""
    if sequence.has_promise:
        return False
    is_background = sequence.is_background
    return (bool(batch.free_slots) and not all(
        each.is_background is not is_background or suspects.holds(each) or each.is_undecided
        or not batch.adapters.is_loaded(each.adapter) for each in waiting
    )) or any(each.is_prefilling and each.is_background is is_background
             for each in batch.running if each is not sequence)
