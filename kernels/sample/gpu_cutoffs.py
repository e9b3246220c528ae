"""Finds the tokens that top-k, top-p, typical-p and min-p keep of each row, in Triton, without a sort: those up to a
boundary.

The whole grid reads the rows that have one. `_measure` finds the largest score of each block, and the mass; later
launches pass over the blocks whose largest score is too low. Then, cutoff by cutoff, `decide` plans where to look for
the boundary: from some score upwards, if the largest scores of the blocks, which are tokens too, are enough by
themselves; else between two of a few pivots, above which `_tally` adds up the tokens or their mass. `_collect` lists
the scores there, few as a rule, and `decide` finds the boundary among them.

All sums are made in an order that follows from the vocabulary alone. A row without a cutoff is not read. One that keeps
few tokens is read once, and for each cutoff once more in the blocks that hold some of them; one that keeps many is read
three times for its first cutoff.
"""

from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.sample.gpu_adjust import POINTERS, Scores, scores_of
from penstock.kernels.sample.gpu_boundary import COUNT, MASS, PIVOTS, TYPICAL, value_of
from penstock.kernels.sample.gpu_plan import (
    FIRST_PIVOT,
    LEAST,
    NOTHING,
    OFF,
    PLAN,
    STATE,
    TOP,
    WIDE,
    bracket,
    decide,
    is_cut,
    temperature_of,
)
from penstock.kernels.sample.parameters import SampleParameters
from penstock.kernels.softmax_gpu import from_key, parts_of, to_key, weigh

LIST = 2048  # scores of a list, at a time
MODES = {"top_k": COUNT.value, "top_p": MASS.value, "typical_p": TYPICAL.value}
"""In the order in which they hold."""


@triton.jit(do_not_specialize_on_alignment=POINTERS)
def _measure(logits, adjusted, is_adjusted, bounds, do_sample, temperature, top_k, top_p, typical_p, min_p, largest,
             masses, moments, VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr,
             BLOCKS: tl.constexpr):
    """Writes the largest score of each block of a row's part, and relative to the part's largest the mass and the sum
    of weighted differences of what is left."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if is_cut(do_sample, top_k, top_p, typical_p, min_p, row, VOCABULARY):
        scores = scores_of(logits, adjusted, is_adjusted, row, VOCABULARY)
        _, scale = temperature_of(temperature, do_sample, row)
        lowest = tl.load(bounds + row * 4)
        block = part * BLOCKS + tl.arange(0, BLOCKS)
        own = largest + row * tl.num_programs(1) * BLOCKS + block
        has_bound = tl.zeros([BLOCKS], tl.float32) + lowest > -float("inf")
        is_block = tl.load(own, mask=has_bound, other=float("inf")) >= lowest
        token = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        score = tl.load(scores + token, mask=(token < VOCABULARY) & is_block[:, None], other=-float("inf"))
        key = tl.max(to_key(score), axis=1)
        tl.store(own, from_key(key))
        top = from_key(tl.max(key, axis=0))
        base = tl.where(tl.abs(top) < float("inf"), top, 0.0)
        is_left = (score >= lowest) & (tl.abs(score) < float("inf")) & (score <= base)
        difference = tl.where(is_left, score - base, 0.0)
        weight = tl.where(is_left, weigh(difference, 0.0, scale), 0.0)
        index = row * tl.num_programs(1) + part
        tl.store(masses + index, tl.sum(tl.sum(weight, axis=0).to(tl.float64), axis=0))
        tl.store(moments + index, tl.sum(tl.sum(weight * difference, axis=0).to(tl.float64), axis=0))


@triton.jit
def _sums_above(scores, largest, begin, least, pivots, mode, is_counted, top, scale, lowest, middle, rest,
                VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, PIVOTS: tl.constexpr):
    """Returns how many tokens of a row's part are not below each pivot, or their mass."""
    sums = tl.zeros([PIVOTS, BLOCK], tl.float32)
    for start in range(begin, tl.minimum(begin + PART, VOCABULARY), BLOCK):
        if tl.load(largest + start // BLOCK) >= least:
            token = start + tl.arange(0, BLOCK)[None, :]  # in the layout of the sums, so that nothing is exchanged
            score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
            weight = tl.where(is_counted, 1.0, weigh(score, top, scale))
            weight = tl.where((score >= lowest) & (score > -float("inf")), weight, 0.0)
            value = value_of(score, mode, middle, rest)
            sums += tl.where(value >= pivots[:, None], weight, 0.0)
    return tl.sum(sums, axis=1)


@triton.jit(do_not_specialize=["mode"], do_not_specialize_on_alignment=POINTERS)
def _tally(logits, adjusted, is_adjusted, bounds, do_sample, temperature, largest, plans, tallies, masses_above, mode,
           VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
           PIVOTS: tl.constexpr):
    """Adds up, for one part of a row, what is not below each pivot."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    plan = plans + row * PLAN
    if tl.load(plan + STATE) == WIDE:
        scores = scores_of(logits, adjusted, is_adjusted, row, VOCABULARY)
        _, scale = temperature_of(temperature, do_sample, row)
        lowest = tl.load(bounds + row * 4)
        middle = tl.load(bounds + row * 4 + 1)
        rest = tl.load(bounds + row * 4 + 2)
        top = tl.load(plan + TOP).to(tl.float32)
        place = tl.arange(0, PIVOTS)
        pivots = tl.load(plan + FIRST_PIVOT + place).to(tl.float32)
        least = tl.where(mode == TYPICAL, lowest, tl.maximum(lowest, tl.min(pivots, axis=0)))
        own = largest + row * tl.num_programs(1) * BLOCKS
        index = (row * tl.num_programs(1) + part) * PIVOTS + place
        sums = _sums_above(scores, own, part * PART, least, pivots, mode, mode == COUNT, top, scale, lowest, middle,
                           rest, VOCABULARY, PART, BLOCK, PIVOTS)
        tl.store(tallies + index, sums)
        if mode == COUNT:
            sums = _sums_above(scores, own, part * PART, least, pivots, mode, False, top, scale, lowest, middle, rest,
                               VOCABULARY, PART, BLOCK, PIVOTS)
            tl.store(masses_above + index, sums)


@triton.jit(do_not_specialize=["mode"])
def _collect(logits, adjusted, is_adjusted, bounds, largest, plans, tallies, masses_above, found, lengths, nearer, mode,
             VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
             PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, PIVOTS: tl.constexpr):
    """Lists the scores of a row's part among which the boundary is; tells the largest score that is nearer than all of
    them, of which only typical-p does not know that it is the row's."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    plan = plans + row * PLAN
    state = tl.load(plan + STATE)
    if state != OFF:
        scores = scores_of(logits, adjusted, is_adjusted, row, VOCABULARY)
        lowest = tl.load(bounds + row * 4)
        middle = tl.load(bounds + row * 4 + 1)
        rest = tl.load(bounds + row * 4 + 2)
        low, high, _, _ = bracket(plan, state, mode, tallies, masses_above, row, PARTS, PARTS_BLOCK, PIVOTS)
        least = tl.where(mode == TYPICAL, lowest, tl.maximum(lowest, low))
        own = found + (row * PARTS + part) * PART
        length = tl.full([], 0, tl.int32)
        near = tl.full([], -float("inf"), tl.float32)
        for start in range(part * PART, tl.minimum(part * PART + PART, VOCABULARY), BLOCK):
            if tl.load(largest + row * PARTS * BLOCKS + start // BLOCK) >= least:
                token = start + tl.arange(0, BLOCK)
                score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
                value = value_of(score, mode, middle, rest)
                is_left = (score >= lowest) & (score > -float("inf"))
                is_found = (is_left & (value >= low) & (value < high)).to(tl.int32)
                place = length + tl.cumsum(is_found, axis=0) - 1
                tl.store(own + place, score, mask=is_found > 0)
                length += tl.sum(is_found, axis=0)
                near = tl.maximum(near, tl.max(tl.where(is_left & (value >= high), score, -float("inf")), axis=0))
        tl.store(lengths + row * PARTS + part, length)
        tl.store(nearer + row * PARTS + part, near)


class Cutoffs:
    """Finds the rows' cutoffs, and holds what the launches tell each other."""

    def __init__(self, scores: Scores, parameters: SampleParameters) -> None:
        (num_rows, vocabulary), device = scores.logits.shape, scores.logits.device
        part, block = parts_of(vocabulary)
        num_parts, num_blocks = triton.cdiv(vocabulary, part), part // block
        self.scores, self._parameters = scores, parameters
        self._grid = num_rows, num_parts

        def empty(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.empty(num_rows, *shape, dtype=dtype, device=device)

        self.largest = empty(torch.float32, num_parts * num_blocks)
        """The largest score of each block of a row, as far as the row has cutoffs."""
        self._masses = empty(torch.float64, num_parts), empty(torch.float64, num_parts)
        self._plans = empty(torch.float64, PLAN.value)
        self._tallies = empty(torch.float32, num_parts, PIVOTS.value), empty(torch.float32, num_parts, PIVOTS.value)
        self._found = (empty(torch.float32, num_parts * part), empty(torch.int32, num_parts),
                       empty(torch.float32, num_parts))
        self._blocks = {"VOCABULARY": vocabulary, "PART": part, "BLOCK": block, "BLOCKS": num_blocks, "num_warps": 1}
        self._parts = {"PARTS": num_parts, "PARTS_BLOCK": triton.next_power_of_2(num_parts), "PIVOTS": PIVOTS.value}

    def find(self) -> None:
        """Launches the kernels that find the bounds of the scores."""
        modes = [*(mode for name, mode in MODES.items() if name in self._parameters.passes), LEAST.value]
        self._measure()
        self._decide(NOTHING, modes[0])
        for mode, following in pairwise(modes):
            self._search(mode)
            if following == TYPICAL.value:  # whose middle is that of what is left
                self._decide(mode, NOTHING)
                self._measure()
                self._decide(NOTHING, following)
            else:
                self._decide(mode, following)

    def _measure(self) -> None:
        p = self._parameters
        _measure[self._grid](
            *self.scores.tensors, p.do_sample, p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p, self.largest,
            *self._masses, **{**self._blocks, "num_warps": 4})

    def _search(self, mode: int) -> None:
        p = self._parameters
        _tally[self._grid](
            *self.scores.tensors, p.do_sample, p.temperature, self.largest, self._plans, *self._tallies, mode,
            PIVOTS=PIVOTS.value, **self._blocks)
        _collect[self._grid](
            *self.scores.tensors, self.largest, self._plans, *self._tallies, *self._found, mode, **self._parts,
            **self._blocks)

    def _decide(self, settled: int, planned: int) -> None:
        p, form = self._parameters, self._blocks
        decide[self._grid[:1]](
            self.scores.bounds, p.do_sample, p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p, self.largest,
            *self._masses, self._plans, *self._tallies, *self._found, settled, planned, VOCABULARY=form["VOCABULARY"],
            PART=form["PART"], BLOCKS=form["BLOCKS"], LIST=LIST, num_warps=8, **self._parts)
