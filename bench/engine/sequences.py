"""Steps as a router sends them: prompts cut to the token budget, then a token for each sequence."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import ADAPTER, encode_number
from penstock.shard.execution.ids import Ids

GREEDY = Sampling()


def random_prompts(number: int, length: int, vocab_size: int, first_id: int = 3, seed: int = 0) -> list[Ids]:
    """Returns prompts that are the same for the same seed; ids below `first_id` are those of special tokens."""
    return [np.random.default_rng([seed, index]).integers(first_id, vocab_size, length) for index in range(number)]


class Sequences:
    """Sequences of one length, each in a slot of its own; `blocks` are dealt out to them, as many to each."""

    def __init__(self, prompts: Sequence[Ids], new: int, block_size: int, blocks: Iterable[int],
                 samplings: Sequence[Sampling] = (), adapters: Sequence[int] = (), first_slot: int = 0) -> None:
        """Gives each prompt an answer of `new` tokens. Without `samplings` it is greedy, without `adapters` the base's.
        The slots are those from `first_slot` on. Raises ValueError for too few blocks."""
        self.prompts = [tuple(prompt.tolist()) for prompt in prompts]
        self.length = len(prompts[0])
        self.end = self.length + new
        self.blocks_each = -(-self.end // block_size)
        self._block_size = block_size
        self._samplings = samplings or [GREEDY] * len(prompts)
        self._side_inputs = [{ADAPTER: encode_number(number)} if number else {}
                             for number in adapters or [0] * len(prompts)]
        self._first_slot = first_slot
        given, needed = np.fromiter(blocks, np.int32), len(prompts) * self.blocks_each
        if len(given) < needed:
            raise ValueError(f"{len(prompts)} sequences of {self.end} tokens need {needed} blocks, there are "
                             f"{len(given)}")
        self._blocks = [tuple(own) for own in given[:needed].reshape(len(prompts), self.blocks_each).tolist()]

    def prompt_steps(self, budget: int) -> Iterator[Plan]:
        """Yields prompt after prompt; a step takes as many of their tokens as the budget allows, of the last a part."""
        rows: list[Row] = []
        left, number = budget, 0
        for index in range(len(self.prompts)):
            start = 0
            while start < self.length:
                count = min(left, self.length - start)
                rows.append(self._prompt_row(index, start, start + count))
                start, left = start + count, left - count
                if left == 0:
                    yield Plan(number, tuple(rows))
                    rows, left, number = [], budget, number + 1
        if rows:
            yield Plan(number, tuple(rows))

    def decode_steps(self, first: int = 0) -> Iterator[Plan]:
        """Yields a step for each further token, numbered from `first` on; the last token sampled is never an input."""
        for number, position in enumerate(range(self.length, self.end - 1), first):
            yield Plan(number, tuple(self._decode_row(index, position) for index in range(len(self.prompts))))

    def _prompt_row(self, index: int, start: int, end: int) -> Row:
        state = None
        if start == 0:
            state = InitialState(self._samplings[index], self.length, side_inputs=self._side_inputs[index])
        return Row(self._first_slot + index, start, self.prompts[index][start:end],
                   new_blocks=self._new_blocks(index, start, end),
                   output=Output.SAMPLE if end == self.length else Output.NONE, initial_state=state)

    def _decode_row(self, index: int, position: int) -> Row:
        return Row(self._first_slot + index, position, from_last_sample=True,
                   new_blocks=self._new_blocks(index, position, position + 1), output=Output.SAMPLE)

    def _new_blocks(self, index: int, start: int, end: int) -> tuple[int, ...]:
        """Returns the blocks that positions from `start` to `end` are the first to need."""
        return self._blocks[index][-(-start // self._block_size) : -(-end // self._block_size)]
