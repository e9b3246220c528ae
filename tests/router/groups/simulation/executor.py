"""What shards compute: the rows of plans, over a KV memory that holds what was written to it, right or wrong."""

from collections.abc import Callable, Mapping

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.contract.step_result import StepResult
from tests.adapter_inputs import number_in
from tests.router.groups.simulation.oracle import ALL, VOCAB, draw, extend, prompt_logprob

Kills = Callable[[int, int, int], bool]
"""Tells whether to compute the token of a place, of a seed and a branch, is the group's death."""


class Memory:
    """The KV memory of a group, which may outlive its shards; one of another `id` began empty."""

    def __init__(self, id: str, num_blocks: int, block_size: int) -> None:
        self.id = id
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.blocks = [[0] * block_size for _ in range(num_blocks)]


class Slot:
    """A sequence's place: its block table and what its rows don't tell."""

    def __init__(self, state: InitialState, first: int) -> None:
        self.seed, self.branch = state.sampling.seed, state.sampling.branch
        self.first = first
        """What the empty sequence holds."""
        self.blocks: list[int] = []
        self.last: int | None = None
        """The token sampled last; None behind guesses."""


class Executor:
    """Runs the steps of one stream of orders, which begins with empty slots. What a row reads is what the memory holds,
    by the slot's own table: a block that is another's, or was shared too early, gives another token.

    `first` returns what an empty sequence of an adapter holds. AssertionError where orders contradict one another.
    """

    def __init__(self, memory: Memory, first: Callable[[int], int]) -> None:
        self._memory = memory
        self._first = first
        self._slots: dict[int, Slot] = {}
        self._next_step_id = 0

    def kills(self, plan: Plan, kills: Kills) -> bool:
        """Tells whether a plan that is about to run is the group's death."""
        for row in plan.rows:
            if row.output is Output.SAMPLE:
                if (state := row.initial_state) is not None:
                    seed, branch = state.sampling.seed, state.sampling.branch
                else:
                    seed, branch = self._slots[row.slot].seed, self._slots[row.slot].branch
                if kills(seed, branch, row.start + row.num_inputs):
                    return True
        return False

    def run(self, plan: Plan, masks: Mapping[int, bytes]) -> StepResult:
        """Runs a step; `masks` by slot."""
        assert plan.step_id == self._next_step_id, f"step {plan.step_id} comes after {self._next_step_id - 1}"
        self._next_step_id += 1
        for slot in plan.cleared_slots:
            assert slot in self._slots, f"slot {slot} is cleared but holds no sequence"
            del self._slots[slot]
        blocks = self._memory.blocks
        for copy in plan.block_copies:
            blocks[copy.target][:] = blocks[copy.source]
        results = [self._run_row(row, masks.get(row.slot)) for row in plan.rows]
        return StepResult(
            plan.step_id, tuple(result for row, result in zip(plan.rows, results, strict=True) if row.is_answered),
            forward_ns=1_000_000 * len(plan.rows) + 100_000 * plan.num_tokens)

    def _run_row(self, row: Row, masks: bytes | None) -> RowResult:
        if row.initial_state is not None:
            assert row.slot not in self._slots, f"slot {row.slot} is given out twice"
            self._slots[row.slot] = Slot(row.initial_state, self._first(number_in(row.initial_state)))
        slot, size = self._slots[row.slot], self._memory.block_size
        slot.blocks += row.new_blocks
        inputs = row.token_ids
        if row.from_last_sample:
            assert slot.last is not None, f"slot {row.slot} goes on from a token that was never sampled"
            inputs = (slot.last, *inputs)
        assert row.start + len(inputs) <= len(slot.blocks) * size, f"slot {row.slot} has no block for its tokens"
        values = self._write(slot, row.start, inputs)
        logprobs = tuple(prompt_logprob(values[:row.start + 1 + place], token_id)
                         for place, token_id in enumerate(row.prompt_logprob_ids))
        if row.output is Output.NONE:
            return RowResult(row.slot, (), (), prompt_logprobs=logprobs)
        tokens, token_logprobs = self._sample(slot, row, values, inputs, masks)
        slot.last = None if row.num_drafts else tokens[0]
        return RowResult(row.slot, tuple(tokens), tuple(token_logprobs), prompt_logprobs=logprobs)

    def _write(self, slot: Slot, start: int, inputs: tuple[int, ...]) -> list[int]:
        """Writes the values of the inputs, and returns those of all positions up to them."""
        blocks, size = self._memory.blocks, self._memory.block_size
        values: list[int] = []
        for number in slot.blocks[:-(-start // size)]:
            values += blocks[number]
        del values[start:]
        value = values[-1] if start else slot.first
        for position, token_id in enumerate(inputs, start):
            value = extend(value, token_id)
            blocks[slot.blocks[position // size]][position % size] = value
            values.append(value)
        return values

    def _sample(
        self, slot: Slot, row: Row, values: list[int], inputs: tuple[int, ...], masks: bytes | None
    ) -> tuple[list[int], list[float]]:
        """Samples before the first guess and behind each, as far as they are right."""
        tokens: list[int] = []
        logprobs: list[float] = []
        for place in range(row.num_drafts + 1):
            end = len(values) - row.num_drafts + place
            allowed = ALL
            if masks is not None:
                allowed = int.from_bytes(masks[place * VOCAB // 8:(place + 1) * VOCAB // 8], "little")
            token_id, logprob = draw(values[:end], inputs[end - row.start - 1], slot.seed, slot.branch, allowed)
            tokens.append(token_id)
            logprobs.append(logprob)
            if place == row.num_drafts or row.drafts[place] != token_id:
                break
        return tokens, logprobs
