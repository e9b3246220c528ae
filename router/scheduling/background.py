"""Sequences of the background get slots, blocks and time that nobody else waits for; others hardly notice.

They come after all others in the order, so that their rows are a step's last, and that they are preempted first. While
others are there, or were in the last `MOMENT_SECONDS` of steps, a part of the slots and of the blocks is kept free for
those who may come, and the background's rows are few: none beside a prompt of others, and elsewhere as many as let the
step take little longer. When nobody else has been there for longer it has everything.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence as Items

from penstock.router.scheduling.adapter_fairness import adapter_victim
from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.in_order import has_background, of_class
from penstock.router.scheduling.plan_builder import PlanBuilder
from penstock.router.scheduling.priorities import MOMENT_SECONDS
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.speculation.speculation import Speculation
from penstock.router.scheduling.speculation.step_cost import StepCost
from penstock.router.scheduling.suspects import Suspects

LENGTHENING = 1.1
"""How much longer a step may take for the background's rows in it, as a factor."""
PART_OF_PROMPT = 0.5
"""How long a step with the background's rows alone may take while others are expected, as a part of the time of a step
with a prompt of theirs, which it keeps waiting; as long as that of a single row in any case."""
WEIGHT = 0.1
"""The weight of the newest step among those with prompts of others."""
KEPT_PART = 8
"""The part of the slots and of the blocks that is kept free for others, as a divisor."""


class Background:
    """Says how much of a step, and of slots and blocks, the sequences of the background may have, and preempts them."""

    def __init__(self, batch: Batch, suspects: Suspects, max_slots: int) -> None:
        self._batch, self._suspects = batch, suspects
        self._kept_slots = max_slots // KEPT_PART
        self._cost = StepCost()
        self._quiet_seconds = math.inf
        self._prompt_tokens = 1.0
        """How many tokens steps with prompts of others had lately."""
        self._due_slots = self.due_blocks = 0
        """For how many slots and blocks others wait."""

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is there, or was a moment ago, by the time of steps."""
        return self._quiet_seconds >= MOMENT_SECONDS

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Takes in how long a step took."""
        self._cost.observe(num_tokens, seconds)
        self._quiet_seconds += seconds

    def make_way(self, waiting: Items[Sequence]) -> None:
        """Preempts sequences of the background, the last first, as far as others wait for the slots, the blocks and the
        adapters' memory that they hold, or may come for them."""
        batch = self._batch
        if not (has_background(waiting) or has_background(batch.running)):
            if waiting or batch.running:
                self._quiet_seconds = 0.0
            return
        self.note_due(waiting)
        others = [each for each in of_class(waiting, False) if not self._suspects.holds(each)]
        if others or (batch.running and not batch.running[0].is_background):
            self._quiet_seconds = 0.0
        elif self.is_alone:
            return
        slots = self._due_slots + self._kept_slots
        blocks = self._blocks_for_others()
        least = 0 if self._due_slots else 1
        while len(batch.running) > least and batch.running[-1].is_background and not (
                batch.num_slots_coming >= slots and batch.num_blocks_coming >= blocks):
            batch.evict(batch.waiting.shares.last(batch.running))
        for each in others if has_background(batch.running) else ():
            while (victim := self._adapter_victim(each)) is not None:
                batch.evict(victim)

    def _blocks_for_others(self) -> int:
        """Returns how many blocks others wait for, may come for, or need to grow."""
        return self.due_blocks + self.kept_blocks + sum(
            self._batch.memory.reserve_of(each) for each in self._batch.running if not each.is_background)

    def may_fork(self, beam: Sequence) -> bool:
        """Tells whether a beam may have a fork at once: one of the background as far as it leaves others their room."""
        if not beam.is_background:
            return True
        memory = self._batch.memory
        return self.has_slot and memory.num_available >= memory.blocks_to_fork(beam, 1) + self._blocks_for_others()

    def note_due(self, waiting: Items[Sequence]) -> None:
        """Notes for how many slots and blocks others wait: those that would run if they had them."""
        able = [each for each in of_class(waiting, False) if self._batch.is_able(each, self._suspects)]
        self._due_slots = len(able)
        memory = self._batch.memory
        self.due_blocks = sum(memory.blocks_for(len(each.tokens)) + memory.reserve_of(each) for each in able)

    def _adapter_victim(self, sequence: Sequence) -> Sequence | None:
        """Returns the last of the background whose adapter leaves no room for that of another one that waits."""
        if not self._batch.adapters.is_crowded_out(sequence.adapter):
            return None
        return adapter_victim(sequence, of_class(self._batch.running, True), self._batch.adapters)

    @property
    def kept_blocks(self) -> int:
        """How many blocks are kept free for others."""
        return 0 if self.is_alone else self._batch.memory.pool.num_blocks // KEPT_PART

    @property
    def has_slot(self) -> bool:
        """Whether one more sequence of the background may have a slot."""
        kept = 0 if self.is_alone or not self._batch.running else self._kept_slots
        return len(self._batch.free_slots) > kept + self._due_slots

    def limit(
        self, builder: PlanBuilder, waiting: Items[Sequence], is_first: bool, speculation: Speculation | None
    ) -> None:
        """Limits a step's budget to as many tokens as the background may have, beside the rows of all others.
        `is_first` tells that no step is in flight: one that is would make who comes wait for both."""
        self.note_due(waiting)
        builder.budget = self._tokens_beside(builder, is_first)
        if speculation is not None and builder.rows:  # of which some may bring guesses, and many samples
            builder.budget = min(builder.budget, speculation.samples_left(builder.rows))

    def _tokens_beside(self, builder: PlanBuilder, is_first: bool) -> int:
        """Returns how many tokens the rows of the background may have in a step that has those of all others."""
        num_others = sum(row.num_inputs for _, row in builder.rows)
        if self.is_alone:
            return builder.budget
        if any(not row.is_decode for _, row in builder.rows):
            self._prompt_tokens += WEIGHT * (num_others - self._prompt_tokens)
            return 0
        if not (num_others or is_first):
            return 0
        most = LENGTHENING * self._cost.seconds(num_others)
        if not num_others:
            most = max(most, PART_OF_PROMPT * self._cost.seconds(self._prompt_tokens))
        fitting = bisect_right(
            range(builder.budget + 1), most, key=lambda number: self._cost.seconds(num_others + number)) - 1
        return min(builder.budget, max(1, fitting))
