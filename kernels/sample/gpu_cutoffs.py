"""Finds what top-k, top-p, typical-p and min-p keep of each row, in Triton, without a sort: tokens up to a boundary.

The whole grid reads the rows, and a row that has a cutoff no more often than it must. `_measure` finds the largest score
of each block, and the mass: later launches pass over the blocks whose largest score is too low. Then, cutoff by cutoff,
`_decide` plans where to look for the boundary: where the largest scores of the blocks, which are tokens too, are enough
by themselves, among the tokens from the last one needed upwards; else between two of a few pivots, above which `_tally`
adds up the tokens or their mass. `_collect` lists the tokens there, as a rule few, and `_decide` finds the boundary among
them. All sums are made in an order that follows from the vocabulary alone.
"""

from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.sample.gpu_adjust import POINTERS, Scores, scores_of
from penstock.kernels.sample.gpu_boundary import (
    COUNT,
    PIVOTS,
    TYPICAL,
    find_boundary,
    listed_largest,
    listed_sum,
    lowest_score,
    value_of,
    view_list,
)
from penstock.kernels.sample.parameters import SampleParameters
from penstock.kernels.softmax_gpu import INFINITE_KEY, from_key, parts_of, to_key, weigh

LIST = 2048  # tokens of a list, at a time
MODES = {"top_k": 0, "top_p": 1, "typical_p": 2}
"""In the order in which they hold."""
NOTHING = -1
LEAST = tl.constexpr(3)  # min-p, which needs no search
OFF, WIDE, NARROW = (tl.constexpr(number) for number in range(3))
"""What is planned for a row: nothing; a search between pivots; one from `low` upwards."""
FEW_PASSES = tl.constexpr(3)  # to a bound from which to look upwards
UNTIL_FOUND = tl.constexpr(1 << 30)
PLAN = tl.constexpr(16)
STATE, LOW, WANTED, TOP, FIRST_PIVOT = (tl.constexpr(place) for place in (0, 1, 2, 3, 8))
"""Where in the PLAN float64 numbers of a row they are."""
ENOUGH = tl.constexpr(1.0 + 2.0**-16)  # times as much as wanted is that much in any order of adding
ASIDE = tl.constexpr(4.0)  # how far pivots of counts reach, in distances of the blocks' largest scores


@triton.jit
def temperature_of(temperature, do_sample, row):
    """Returns the temperature in float64, and what scores are multiplied with: within what float32 can work with."""
    value = tl.where(tl.load(do_sample + row), tl.maximum(tl.load(temperature + row), 1.1754943508222875e-38), 1.0)
    scale = 1.0 / tl.minimum(tl.maximum(value, 8.077935669463161e-28), 1.2379400392853803e27)  # 2^-90 and 2^90
    return value.to(tl.float64), scale


@triton.jit
def _kept(mode, top_k, top_p, typical_p, row, VOCABULARY: tl.constexpr):
    """Tells whether a row has this cutoff, and how many tokens or what share of the mass it keeps, float64."""
    count = tl.load(top_k + row)
    is_on = (count > 0) & (count < VOCABULARY)
    kept = count.to(tl.float64)
    if mode != COUNT:
        share = tl.load(top_p + row)
        if mode == TYPICAL:
            share = tl.load(typical_p + row)
        is_on = share < 1
        kept = share.to(tl.float64)
    return is_on, kept


@triton.jit
def _is_cut(do_sample, top_k, top_p, typical_p, min_p, row, VOCABULARY: tl.constexpr):
    has_count, _ = _kept(0, top_k, top_p, typical_p, row, VOCABULARY)
    has_share = (tl.load(top_p + row) < 1) | (tl.load(typical_p + row) < 1) | (tl.load(min_p + row) > 0)
    return tl.load(do_sample + row) & (has_count | has_share)


@triton.jit(do_not_specialize_on_alignment=POINTERS)
def _measure(logits, adjusted, is_adjusted, bounds, do_sample, temperature, top_k, top_p, typical_p, min_p, largest,
             masses, moments, VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr,
             BLOCKS: tl.constexpr):
    """Writes the largest score of each block of a row's part, and relative to the part's largest the mass and the sum
    of weighted differences of what is left."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if _is_cut(do_sample, top_k, top_p, typical_p, min_p, row, VOCABULARY):
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
def _join(largest, masses, moments, row, scale, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """Returns a row's largest score, and relative to it the mass and the sum of weighted differences, float64."""
    part = tl.arange(0, PARTS_BLOCK)
    is_part = part < PARTS
    place = (row * PARTS + part)[:, None] * BLOCKS + tl.arange(0, BLOCKS)[None, :]
    key = tl.max(to_key(tl.load(largest + place, mask=is_part[:, None], other=-float("inf"))), axis=1)
    top = from_key(tl.max(key, axis=0))
    of_part = from_key(key)
    base = tl.where(tl.abs(top) < float("inf"), top, 0.0)
    is_left = (tl.abs(of_part) < float("inf")) & (of_part <= base)
    difference = tl.where(is_left, of_part - base, 0.0)
    weight = tl.where(is_left, weigh(difference, 0.0, scale), 0.0).to(tl.float64)
    mass = tl.load(masses + row * PARTS + part, mask=is_part, other=0.0)
    moment = tl.load(moments + row * PARTS + part, mask=is_part, other=0.0)
    moment += difference.to(tl.float64) * mass
    return top, tl.sum(weight * mass, axis=0), tl.sum(weight * moment, axis=0)


@triton.jit
def _sums_above(scores, largest, begin, least, pivots, mode, is_counted, top, scale, lowest, middle, rest,
                VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, PIVOTS: tl.constexpr):
    """Returns how many tokens of a row's part are not below each pivot, or their mass."""
    sums = tl.zeros([PIVOTS, BLOCK], tl.float32)
    for start in range(begin, tl.minimum(begin + PART, VOCABULARY), BLOCK):
        if tl.load(largest + start // BLOCK) >= least:
            token = start + tl.arange(0, BLOCK)
            score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
            weight = tl.where(is_counted, 1.0, weigh(score, top, scale))
            weight = tl.where((score >= lowest) & (score > -float("inf")), weight, 0.0)
            value = value_of(score, mode, middle, rest)
            sums += tl.where(value[None, :] >= pivots[:, None], weight[None, :], 0.0)
    return tl.sum(sums, axis=1)


@triton.jit(do_not_specialize=["mode"])
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
        sums = _sums_above(scores, own, part * PART, least, pivots, mode, mode == COUNT, top, scale, lowest, middle, rest,
                           VOCABULARY, PART, BLOCK, PIVOTS)
        tl.store(tallies + index, sums)
        if mode == COUNT:
            sums = _sums_above(scores, own, part * PART, least, pivots, mode, False, top, scale, lowest, middle, rest,
                               VOCABULARY, PART, BLOCK, PIVOTS)
            tl.store(masses_above + index, sums)


@triton.jit
def _bracket(plan, state, tallies, masses_above, row, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, PIVOTS: tl.constexpr):
    """Returns from where up to where, itself excluded, the boundary must be looked for; what the tallies say of what is
    above that; and the mass there, of which they only speak where tokens are counted."""
    low = tl.load(plan + LOW).to(tl.float32)
    high = tl.full([], float("inf"), tl.float32)
    above = tl.zeros([], tl.float64)
    mass_above = tl.zeros([], tl.float64)
    if state == WIDE:
        place, part = tl.arange(0, PIVOTS), tl.arange(0, PARTS_BLOCK)
        index = (row * PARTS + part)[:, None] * PIVOTS + place[None, :]
        is_part = (part < PARTS)[:, None]
        sums = tl.sum(tl.load(tallies + index, mask=is_part, other=0.0).to(tl.float64), axis=0)
        masses = tl.sum(tl.load(masses_above + index, mask=is_part, other=0.0).to(tl.float64), axis=0)
        number = tl.sum((sums < tl.load(plan + WANTED)).to(tl.int32), axis=0)
        pivots = tl.load(plan + FIRST_PIVOT + place).to(tl.float32)
        low = tl.max(tl.where(place == number, pivots, -float("inf")), axis=0)
        high = tl.min(tl.where(place == number - 1, pivots, float("inf")), axis=0)
        above = tl.max(tl.where(place == number - 1, sums, 0.0), axis=0)
        mass_above = tl.max(tl.where(place == number - 1, masses, 0.0), axis=0)
    return low, high, above, mass_above


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
        low, high, _, _ = _bracket(plan, state, tallies, masses_above, row, PARTS, PARTS_BLOCK, PIVOTS)
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


@triton.jit
def _plan(plan, largest, row, mode, kept, mass, top, scale, lowest, middle, rest, VOCABULARY: tl.constexpr,
          NUM_BLOCKS: tl.constexpr, PIVOTS: tl.constexpr, LIST: tl.constexpr):
    """Writes where to look for a row's boundary."""
    wanted = kept
    if mode != COUNT:
        wanted = kept * mass
    lane = tl.arange(0, LIST)
    pointers, remaining = largest + row * NUM_BLOCKS + lane, NUM_BLOCKS - lane
    state = tl.full([], WIDE, tl.int32)
    low = tl.full([], -float("inf"), tl.float32)
    if mode != TYPICAL:
        listed = listed_sum(pointers, remaining, NUM_BLOCKS, LIST, mode == COUNT, top, scale, lowest)
        if listed.to(tl.float64) >= wanted * ENOUGH:
            state = tl.full([], NARROW, tl.int32)
            low = find_boundary(pointers, remaining, NUM_BLOCKS, LIST, mode, wanted * ENOUGH, 0.0, low, top,
                                FEW_PASSES, top, scale, lowest, middle, rest)
    # What is less likely than this cannot make up what is to be cut off, even if all tokens were.
    reach = (tl.log(VOCABULARY / ((1.0 - tl.minimum(kept, 1.0 - 2.0**-24)) * mass)) / scale.to(tl.float64)).to(tl.float32)
    start = top
    if mode == COUNT:
        least = tl.full([LIST], float("inf"), tl.float32)
        for first in range(0, NUM_BLOCKS, LIST):
            score = tl.load(pointers + first, mask=first < remaining, other=float("inf"))
            least = tl.minimum(least, tl.where(score > -float("inf"), score, float("inf")))
        reach = ASIDE * (top - tl.min(least, axis=0))
    elif mode == TYPICAL:
        start = top - top
        reach = tl.maximum(top - middle, middle - (top - reach))
    place = tl.arange(0, PIVOTS)
    tl.store(plan + FIRST_PIVOT + place, (start - reach * ((place + 1).to(tl.float32) / PIVOTS)).to(tl.float64))
    tl.store(plan + LOW, low.to(tl.float64))
    tl.store(plan + WANTED, wanted)
    tl.store(plan + TOP, top.to(tl.float64))
    tl.store(plan + STATE, state.to(tl.float64))


@triton.jit(do_not_specialize=["settled", "planned"], do_not_specialize_on_alignment=POINTERS)
def _decide(bounds, do_sample, temperature, top_k, top_p, typical_p, min_p, largest, masses, moments, plans, tallies,
            masses_above, found, lengths, nearer, settled, planned, VOCABULARY: tl.constexpr, PART: tl.constexpr,
            BLOCKS: tl.constexpr, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, PIVOTS: tl.constexpr,
            LIST: tl.constexpr):
    """Finds the boundary of the cutoff `settled` of a row, if it has that, and plans the search for that of `planned`."""
    row = tl.program_id(0).to(tl.int64)
    plan, own = plans + row * PLAN, bounds + row * 4
    exact, scale = temperature_of(temperature, do_sample, row)
    state = tl.load(plan + STATE, mask=settled >= 0, other=0.0)
    top = tl.full([], float("inf"), tl.float32)
    mass = tl.zeros([], tl.float64)
    moment = tl.zeros([], tl.float64)
    if _is_cut(do_sample, top_k, top_p, typical_p, min_p, row, VOCABULARY):
        top, mass, moment = _join(largest, masses, moments, row, scale, PARTS, PARTS_BLOCK, BLOCKS)
    top_left = top
    lowest = tl.load(own)
    middle = tl.load(own + 1)
    rest = tl.load(own + 2)
    if state != OFF:
        low, high, above, mass_above = _bracket(plan, state, tallies, masses_above, row, PARTS, PARTS_BLOCK, PIVOTS)
        pointers, remaining, most = view_list(found, lengths, row, PART, PARTS, PARTS_BLOCK, LIST)
        wanted = tl.load(plan + WANTED)
        high = tl.minimum(high, tl.where(settled == TYPICAL, 0.0, top))
        boundary = find_boundary(pointers, remaining, most, LIST // PARTS_BLOCK, settled, wanted, above, low, high,
                                 UNTIL_FOUND, top, scale, lowest, middle, rest)
        if settled == TYPICAL:
            part = tl.arange(0, PARTS_BLOCK)
            near = tl.max(tl.load(nearer + row * PARTS + part, mask=part < PARTS, other=-float("inf")), axis=0)
            top_left = tl.maximum(near, listed_largest(pointers, remaining, most, LIST // PARTS_BLOCK, settled, middle,
                                                       rest, boundary))
            tl.store(own + 3, -boundary)
        else:
            lowest = tl.maximum(lowest, boundary)
            tl.store(own, lowest)
            listed = listed_sum(pointers, remaining, most, LIST // PARTS_BLOCK, False, top, scale, lowest)
            mass = tl.where(settled == COUNT, mass_above + listed.to(tl.float64), mass)
    tl.debug_barrier()
    tl.store(plan + STATE, 0.0)
    if to_key(tl.abs(top)) < INFINITE_KEY:
        if planned == LEAST:
            least = tl.load(min_p + row)
            if least > 0:
                tl.store(own, tl.maximum(lowest, lowest_score(top_left, least, exact)))
        elif planned >= 0:
            is_on, kept = _kept(planned, top_k, top_p, typical_p, row, VOCABULARY)
            if is_on:
                if planned == TYPICAL:
                    expected = top.to(tl.float64) + moment / mass
                    middle = expected.to(tl.float32)
                    rest = (expected - middle.to(tl.float64)).to(tl.float32)
                    tl.store(own + 1, middle)
                    tl.store(own + 2, rest)
                _plan(plan, largest, row, planned, kept, mass, top, scale, lowest, middle, rest, VOCABULARY,
                      PARTS * BLOCKS, PIVOTS, LIST)


class Cutoffs:
    """Finds the rows' cutoffs, and holds what the launches tell each other."""

    def __init__(self, scores: Scores, parameters: SampleParameters) -> None:
        (num_rows, vocabulary), device = scores.logits.shape, scores.logits.device
        part, block = parts_of(vocabulary)
        num_parts, num_blocks = triton.cdiv(vocabulary, part), part // block
        self._scores, self._parameters = scores, parameters
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
        self._blocks = {"VOCABULARY": vocabulary, "PART": part, "BLOCK": block, "BLOCKS": num_blocks,
                        "num_warps": max(1, block // 64)}
        self._parts = {"PARTS": num_parts, "PARTS_BLOCK": triton.next_power_of_2(num_parts), "PIVOTS": PIVOTS.value}

    def find(self) -> None:
        """Launches what finds the bounds of the scores."""
        modes = [mode for name, mode in MODES.items() if name in self._parameters.cutoffs]
        self._measure()
        self._decide(NOTHING, [*modes, LEAST.value][0])
        for mode, following in pairwise([*modes, LEAST.value]):
            self._search(mode)
            if following == TYPICAL.value:
                self._decide(mode, NOTHING)
                self._measure()
                mode = NOTHING
            self._decide(mode, following)

    def _measure(self) -> None:
        p = self._parameters
        _measure[self._grid](
            *self._scores.tensors, p.do_sample, p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p, self.largest,
            *self._masses, **{**self._blocks, "num_warps": 8})

    def _search(self, mode: int) -> None:
        p = self._parameters
        _tally[self._grid](
            *self._scores.tensors, p.do_sample, p.temperature, self.largest, self._plans, *self._tallies, mode,
            PIVOTS=PIVOTS.value, **self._blocks)
        _collect[self._grid](
            *self._scores.tensors, self.largest, self._plans, *self._tallies, *self._found, mode, **self._parts,
            **self._blocks)

    def _decide(self, settled: int, planned: int) -> None:
        p, form = self._parameters, self._blocks
        _decide[self._grid[:1]](
            self._scores.bounds, p.do_sample, p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p, self.largest,
            *self._masses, self._plans, *self._tallies, *self._found, settled, planned, VOCABULARY=form["VOCABULARY"],
            PART=form["PART"], BLOCKS=form["BLOCKS"], LIST=LIST, num_warps=8, **self._parts)
