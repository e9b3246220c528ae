"""Schedulers with a fault planted in each, which the simulation has to find."""

from collections.abc import Collection
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Any
from unittest import mock

from penstock.contract.plan import Plan
from penstock.contract.side_inputs import namespace_of
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.background import Background
from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.cached_block import Key, Node
from penstock.router.scheduling.confirmed import Confirmed, Forgotten
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.plan_builder import PlanBuilder
from penstock.router.scheduling.prefix_cache import PrefixCache
from penstock.router.scheduling.priorities import place_of
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence, Status
from tests.adapter_inputs import adapter_input


class DoubleFree(Scheduler):
    """Cancelling lets go of the blocks at once, and again when the steps in flight are back."""

    def finish(self, sequence_id: int, reason: FinishReason) -> None:
        sequence = self._sequences.get(sequence_id)
        super().finish(sequence_id, reason)
        if sequence is not None and sequence.in_flight:
            self.memory.cache.release(sequence.blocks)


class CachedWhenPlanned(Scheduler):
    """Blocks can be shared as soon as a plan writes to them."""

    def _decode(self, sequence: Sequence, builder: PlanBuilder, *options: Any) -> None:
        super()._decode(sequence, builder, *options)
        self.memory.confirm(sequence, min(sequence.computed, len(sequence.tokens)))

    def _prefill(self, sequence: Sequence, builder: PlanBuilder, is_alone: bool = False) -> None:
        super()._prefill(sequence, builder, is_alone)
        self.memory.confirm(sequence, min(sequence.computed, len(sequence.tokens)))


class SlotReused(Scheduler):
    """The slot of a cancelled sequence is given out while a step in flight still names it."""

    def finish(self, sequence_id: int, reason: FinishReason) -> None:
        sequence = self._sequences.get(sequence_id)
        super().finish(sequence_id, reason)
        if sequence is not None and sequence.slot is not None:
            self._batch.free_slots.append(sequence.slot)


class LostPin(Scheduler):
    """The first of several results takes all pins."""

    def commit(self, result: StepResult) -> list[Confirmed]:
        for sequence, _ in self._in_flight[0][1]:
            sequence.in_flight = 1
        return super().commit(result)


class _FaultyBatch(Scheduler):
    batch_class: type[Batch]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._batch.__class__ = self.batch_class


class LeakedBlock(_FaultyBatch):
    """The last block of a preempted sequence is never free again."""

    class batch_class(Batch):
        def release(self, sequence: Sequence) -> None:
            if sequence.status is Status.DRAINING and not sequence.in_flight:
                sequence.blocks.pop()
            super().release(sequence)


class SkippedVictim(_FaultyBatch):
    """A sequence that was preempted while a step in flight named it is not put back."""

    class batch_class(Batch):
        def release(self, sequence: Sequence) -> None:
            was_in_flight = sequence in self.leaving
            super().release(sequence)
            if was_in_flight and sequence.status is Status.WAITING:
                self.waiting.remove(sequence)


class SharedAcrossNamespaces(Scheduler):
    """The prefix cache does not look at the namespace."""

    def add(self, sequence: Sequence) -> None:
        super().add(sequence)
        self.memory.cache.__class__ = _OneNamespace


class SharedAcrossAdapters(Scheduler):
    """The prefix cache tells apart who has an adapter and who has none, but no two adapters."""

    def add(self, sequence: Sequence) -> None:
        super().add(sequence)
        self.memory.cache.__class__ = _TwoNamespaces


class AdapterEvictedInUse(Scheduler):
    """An adapter is unloaded for another's sake while sequences use it."""

    def add(self, sequence: Sequence) -> None:
        super().add(sequence)
        self.adapters.__class__ = _ForgetsHolders


class AdapterFreeWhenFinished(Scheduler):
    """A sequence that ends lets go of its adapter while a step in flight still names it."""

    def finish(self, sequence_id: int, reason: FinishReason) -> None:
        sequence = self._sequences.get(sequence_id)
        super().finish(sequence_id, reason)
        if sequence is not None and sequence.in_flight:
            self.adapters.release(sequence.adapter, sequence.is_background)
            sequence.adapter = 0


class AnotherAdapterAfterReplay(Scheduler):
    """What waits again after a loss is computed by the adapter that was used last."""

    def forget_all(self) -> Forgotten:
        forgotten = super().forget_all()
        for sequence in self._waiting:
            if sequence.adapter:
                sequence.adapter = next(reversed(self.adapters._residents), sequence.adapter)
                sequence.side_inputs = adapter_input(sequence.adapter)
        return forgotten


class UnmaskedPrefill(Scheduler):
    """The row that computes the end of a prompt samples without a mask."""

    def _prefill(self, sequence: Sequence, builder: PlanBuilder, is_alone: bool = False) -> None:
        super()._prefill(sequence, builder, is_alone)
        builder.rows[:] = [(each, row._replace(late_mask=row.late_mask and (each is not sequence)))
                           for each, row in builder.rows]


class HitsDespitePromptLogprobs(Scheduler):
    """Prompts whose logprobs are wanted begin behind cached blocks too."""

    def add(self, sequence: Sequence) -> None:
        super().add(sequence)
        self.memory.__class__ = _MatchesAll


class _MatchesAll(KvMemory):
    def match(self, sequence: Sequence) -> Node:
        wants_prompt_logprobs, sequence.wants_prompt_logprobs = sequence.wants_prompt_logprobs, False
        matched = super().match(sequence)
        sequence.wants_prompt_logprobs = wants_prompt_logprobs
        return matched


class PromptLogprobsTakenForGranted(_FaultyBatch):
    """A sequence that is computed again is not asked for its prompt's logprobs again, though some never came."""

    class batch_class(Batch):
        def preempt(self, sequence: Sequence) -> None:
            super().preempt(sequence)
            sequence.prompt_logprobs_end = sequence.prompt_length


class RejectedTokenCached(Scheduler):
    """Blocks are shared up to the last guess, whether it was right or not."""

    def commit(self, result: StepResult) -> list[Confirmed]:
        rows = self._in_flight[0][1]
        for sequence, row in rows:
            if row.num_drafts and sequence.status is Status.RUNNING:
                known = sequence.tokens[:]
                sequence.tokens += row.drafts
                self.memory.confirm(sequence, row.start + row.num_inputs)
                sequence.tokens[:] = known
        return super().commit(result)


class NothingTakenBack(Scheduler):
    """What was computed of wrong guesses counts."""

    def commit(self, result: StepResult) -> list[Confirmed]:
        computed = {sequence.id: sequence.computed for sequence, row in self._in_flight[0][1] if row.num_guesses}
        confirmed = super().commit(result)
        for sequence in self._batch.running:
            sequence.computed = max(sequence.computed, computed.get(sequence.id, 0))
        return confirmed


class UnmaskedGuesses(Scheduler):
    """What follows guesses is sampled without masks."""

    def _decode(self, sequence: Sequence, builder: PlanBuilder, *options: Any) -> None:
        super()._decode(sequence, builder, *options)
        builder.rows[:] = [(each, row._replace(late_mask=row.late_mask and not row.num_drafts))
                           for each, row in builder.rows]


class PlannedWhileVerified(Scheduler):
    """A sequence goes on before it is known which of its guesses were right."""

    def _decode(self, sequence: Sequence, builder: PlanBuilder, *options: Any) -> None:
        super()._decode(sequence, builder, *options)
        if sequence.is_verifying:
            sequence.guesser = None
            self._eager = {*getattr(self, "_eager", ()), sequence}

    def plan(self) -> Plan | None:
        for sequence in getattr(self, "_eager", ()):
            sequence.is_verifying = False
        return super().plan()


class StaleSample(Scheduler):
    """The row after guesses goes on from the token that was sampled last in the slot."""

    def commit(self, result: StepResult) -> list[Confirmed]:
        rows = self._in_flight[0][1]
        confirmed = super().commit(result)
        for sequence, _ in rows:
            sequence.is_verifying = False
        return confirmed


class BlockLostWithGuess(Scheduler):
    """The last block of a sequence goes with the guesses that were taken back."""

    def commit(self, result: StepResult) -> list[Confirmed]:
        rows = self._in_flight[0][1]
        confirmed = super().commit(result)
        for sequence, row in rows:
            if row.num_drafts and sequence.status is Status.RUNNING and sequence.computed < row.start + row.num_inputs:
                sequence.blocks.pop()
        return confirmed


class ForkWithoutCopy(Scheduler):
    """A fork begins with a block that has nothing of what its sequence wrote."""

    def plan(self) -> Plan | None:
        plan = super().plan()
        return None if plan is None else replace(plan, block_copies=())


class LeakedCopy(_FaultyBatch):
    """The copy of a block that a fork had is never free again."""

    class batch_class(Batch):
        def drop_forks(self, sequence: Sequence) -> None:
            for fork in sequence.forks:
                fork.blocks = fork.blocks[1:]
            super().drop_forks(sequence)


class ForkSlotNotCleared(_FaultyBatch):
    """The shards are not told that a fork has left its slot."""

    class batch_class(Batch):
        def drop_forks(self, sequence: Sequence) -> None:
            cleared = list(self.cleared_slots)
            super().drop_forks(sequence)
            self.cleared_slots = cleared


class ForkTakenWithoutItsBlocks(_FaultyBatch):
    """A sequence goes on in its fork's slot with the blocks that its own row wrote."""

    class batch_class(Batch):
        def drop_forks(self, sequence: Sequence) -> None:
            for fork in sequence.forks:
                rest = sequence.blocks[fork.num_shared:]
                sequence.blocks[fork.num_shared:], fork.blocks = fork.blocks, rest
            super().drop_forks(sequence)


class NoWayForOthers(Scheduler):
    """The background keeps its slots and blocks while others wait."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._background.__class__ = _KeepsAll


class BackgroundBesidePrompts(Scheduler):
    """The background may have all that a step has left."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._background.__class__ = _LimitsNothing


class BackgroundFirst(Scheduler):
    """The rows of the background come before those of others."""

    def _plan_class(self, ready: Collection[Sequence], builder: PlanBuilder, is_background: bool) -> None:
        super()._plan_class(ready, builder, not is_background)


class PriorityWithoutAge(Scheduler):
    """Sequences of a lower priority come first, however many they are."""

    def add(self, sequence: Sequence) -> None:
        sequence.order = sequence.priority, sequence.age
        super().add(sequence)


class PriorityLost(_FaultyBatch):
    """A sequence that was preempted waits as if it had no priority."""

    class batch_class(Batch):
        def preempt(self, sequence: Sequence) -> None:
            sequence.order = place_of(sequence.age, 0)
            super().preempt(sequence)


class EndedRowsFree(Scheduler):
    """Nobody is charged for rows whose sequences had ended when the step came back."""

    def commit(self, result: StepResult) -> list[Confirmed]:
        self.ledger._unpaid_tokens = 0
        return super().commit(result)


class ReplaysCountTwice(Scheduler):
    """A prompt that is computed once more counts as if it never had been."""

    def commit(self, result: StepResult) -> list[Confirmed]:
        for sequence in self._sequences.values():
            sequence.usage.reached = 0
        return super().commit(result)


class WaitsOfPassedUntold(Scheduler):
    """Those that a plan has passed by one by one are not told of their waiting."""

    def plan(self) -> Plan | None:
        for crowd in self._waits._crowds.values():
            for sequence, _ in crowd.passed:
                sequence.counts_before = None
        return super().plan()


class _LimitsNothing(Background):
    def limit(self, *_: object) -> None:
        """Leaves the step's budget as it is."""


class _KeepsAll(Background):
    def make_way(self, waiting: Items[Sequence]) -> None:
        """Preempts nobody."""
        self._quiet_seconds = 0.0


class StallsWithBeams(Scheduler):
    """Beams whose candidates have come keep their slots and blocks, whoever needs them."""

    def plan(self) -> Plan | None:
        with mock.patch("penstock.router.scheduling.scheduler.make_room"):
            return super().plan()


class SuspectsForEver(Scheduler):
    """A suspect is cleared by a token alone, and not by candidates of one."""

    def _conclude(self, sequence: Sequence, last: Confirmed | None) -> None:
        if not sequence.is_undecided:
            super()._conclude(sequence, last)


class _OneNamespace(PrefixCache):
    def key(self, namespace: str, tokens: Items[int], index: int) -> Key:
        return super().key("", tokens, index)


class _TwoNamespaces(PrefixCache):
    def key(self, namespace: str, tokens: Items[int], index: int) -> Key:
        return super().key(namespace and namespace_of(adapter_input(1)), tokens, index)


class _ForgetsHolders(Residency):
    def _idle(self, spared: Collection[int]) -> list[int]:
        for each in self._residents.values():
            each.num_holders = 0
        return super()._idle(spared)

    def release(self, number: int, is_background: bool = False) -> None:
        """Counts nothing."""
