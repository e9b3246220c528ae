"""Rows of requests of different lengths, in the order that somebody else chooses, as a router would send them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.shard.execution.slots import Bounds


@dataclass(frozen=True)
class Request:
    prompt: list[int]
    new: int                             # tokens of its answer
    sampling: Sampling

    @property
    def end(self) -> int:
        """Returns how many tokens are inputs: all but the last."""
        return len(self.prompt) + self.new - 1


Picks = Sequence[tuple[int, int]]
"""The tokens that a step takes of each request: number and count of input tokens of each."""


class Orders:
    """Writes the rows of requests, each in the slot of its number, and in blocks that are the same in all orders.

    An answer may have begun: of `outputs` are the tokens that come behind the prompt. The keys and values of the first
    `num_cached` tokens, whole blocks, are in the cache already.
    """

    def __init__(
        self, requests: Sequence[Request], bounds: Bounds, outputs: Sequence[Sequence[int]] = (), num_cached: int = 0
    ) -> None:
        self._requests = requests
        self._known = [[*request.prompt, *output]
                       for request, output in zip(requests, outputs or [()] * len(requests), strict=True)]
        self._places = [min(num_cached, self._whole_blocks(request, bounds.block_size)) for request in requests]
        self._given = [0] * len(requests)
        self._block_size = bounds.block_size
        needed = [-(-request.end // bounds.block_size) for request in requests]
        shuffled = np.random.default_rng(1).permutation(bounds.num_blocks)[:sum(needed)].astype(np.int32)
        self._blocks = np.split(shuffled, np.cumsum(needed)[:-1])

    @property
    def number(self) -> int:
        """Returns how many requests there are."""
        return len(self._requests)

    @staticmethod
    def _whole_blocks(request: Request, block_size: int) -> int:
        """Returns how many tokens of a prompt can be found in whole blocks, so that one is left to compute."""
        return (len(request.prompt) - 1) // block_size * block_size

    def left(self, index: int) -> int:
        """Returns how many input tokens are known and not yet in a row."""
        return len(self._known[index]) - self._places[index]

    def is_done(self, index: int) -> bool:
        return self._places[index] >= self._requests[index].end

    def steps(self, schedule: Iterable[Picks]) -> Iterator[Plan]:
        for number, picks in enumerate(schedule):
            yield Plan(number, tuple(self.row(index, count) for index, count in picks))

    def row(self, index: int, count: int) -> Row:
        """Writes the next input tokens of a request, or the token that was sampled last."""
        begin, known, state = self._places[index], self._known[index], self._first_state(index)
        end = begin + count
        return Row(
            index, begin, from_last_sample=begin >= len(known), token_ids=tuple(known[begin:end]),
            new_blocks=self._move(index, end), output=Output.SAMPLE if end >= len(known) else Output.NONE,
            initial_state=state)

    def verify(self, index: int, last: int, drafts: Sequence[int]) -> Row:
        """Writes the token sampled last with guesses of those that follow. `accept` says how many were right."""
        begin = self._places[index]
        return Row(
            index, begin, from_last_sample=False, token_ids=(last, *drafts),
            new_blocks=self._move(index, begin + 1 + len(drafts)), output=Output.SAMPLE, num_drafts=len(drafts))

    def accept(self, index: int, num_drafts: int, num_right: int) -> None:
        """Goes back behind the last right one of the guesses."""
        self._places[index] -= num_drafts - num_right

    def _move(self, index: int, end: int) -> tuple[int, ...]:
        """Goes on to `end`; returns the blocks that are needed for it."""
        before, self._places[index] = self._given[index], end
        self._given[index] = max(before, -(-end // self._block_size))
        return tuple(self._blocks[index][before:self._given[index]].tolist())

    def _first_state(self, index: int) -> InitialState | None:
        if self._given[index]:
            return None
        request = self._requests[index]
        history = tuple(self._known[index]) if request.sampling.reads_history else ()
        return InitialState(request.sampling, len(request.prompt), history)
