"""The decisions of one program for a row of scores, in Triton: where to look for the boundary of a cutoff, and, among
the scores that were found there, the boundary."""

import triton
import triton.language as tl

from penstock.kernels.sample.gpu_adjust import POINTERS
from penstock.kernels.sample.gpu_boundary import (
    COUNT,
    TYPICAL,
    find_boundary,
    listed_largest,
    listed_sum,
    lowest_score,
    view_list,
)
from penstock.kernels.softmax_gpu import INFINITE_KEY, from_key, to_key, weigh

NOTHING = -1
LEAST = tl.constexpr(3)  # min-p, behind the cutoffs that are searched
OFF, WIDE, NARROW = (tl.constexpr(number) for number in range(3))
"""The plans for a row: nothing; a search between pivots; one from `low` upwards."""
PLAN = tl.constexpr(16)
STATE, LOW, WANTED, TOP, FIRST_PIVOT = (tl.constexpr(place) for place in (0, 1, 2, 3, 8))
"""Where in the PLAN float64 numbers of a row they are."""
ENOUGH = tl.constexpr(1.0 + 2.0**-16)  # times as much as wanted is that much in any order of adding
FEW_PASSES = tl.constexpr(3)  # to a bound from which to look upwards
UNTIL_FOUND = tl.constexpr(1 << 30)
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
def is_cut(do_sample, top_k, top_p, typical_p, min_p, row, VOCABULARY: tl.constexpr):
    has_count, _ = _kept(0, top_k, top_p, typical_p, row, VOCABULARY)
    has_share = (tl.load(top_p + row) < 1) | (tl.load(typical_p + row) < 1) | (tl.load(min_p + row) > 0)
    return tl.load(do_sample + row) & (has_count | has_share)


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
def bracket(plan, state, mode, tallies, masses_above, row, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr,
            PIVOTS: tl.constexpr):
    """Returns from where up to where, itself excluded, the boundary must be looked for; how many tokens or what mass is
    above that; and where tokens are counted, their mass."""
    low = tl.load(plan + LOW).to(tl.float32)
    high = tl.full([], float("inf"), tl.float32)
    above = tl.zeros([], tl.float64)
    mass_above = tl.zeros([], tl.float64)
    if state == WIDE:
        place, part = tl.arange(0, PIVOTS), tl.arange(0, PARTS_BLOCK)
        index = (row * PARTS + part)[:, None] * PIVOTS + place[None, :]
        is_part = (part < PARTS)[:, None]
        sums = tl.sum(tl.load(tallies + index, mask=is_part, other=0.0).to(tl.float64), axis=0)
        number = tl.sum((sums < tl.load(plan + WANTED)).to(tl.int32), axis=0)
        pivots = tl.load(plan + FIRST_PIVOT + place).to(tl.float32)
        low = tl.max(tl.where(place == number, pivots, -float("inf")), axis=0)
        high = tl.min(tl.where(place == number - 1, pivots, float("inf")), axis=0)
        above = tl.max(tl.where(place == number - 1, sums, 0.0), axis=0)
        if mode == COUNT:
            masses = tl.sum(tl.load(masses_above + index, mask=is_part, other=0.0).to(tl.float64), axis=0)
            mass_above = tl.max(tl.where(place == number - 1, masses, 0.0), axis=0)
    return low, high, above, mass_above


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
    share = 1.0 - tl.minimum(kept, 1.0 - 2.0**-24)
    reach = (tl.log(VOCABULARY / (share * mass)) / scale.to(tl.float64)).to(tl.float32)
    start = top
    if mode == COUNT:
        least = tl.full([LIST], float("inf"), tl.float32)
        for first in range(0, NUM_BLOCKS, LIST):
            score = tl.load(pointers + first, mask=first < remaining, other=float("inf"))
            least = tl.minimum(least, tl.where(score > -float("inf"), score, float("inf")))
        reach = ASIDE * (top - tl.min(least, axis=0))
    elif mode == TYPICAL:
        start = tl.zeros([], tl.float32)
        reach = tl.maximum(top - middle, middle - (top - reach))
    place = tl.arange(0, PIVOTS)
    tl.store(plan + FIRST_PIVOT + place, (start - reach * ((place + 1).to(tl.float32) / PIVOTS)).to(tl.float64))
    tl.store(plan + LOW, low.to(tl.float64))
    tl.store(plan + WANTED, wanted)
    tl.store(plan + TOP, top.to(tl.float64))
    tl.store(plan + STATE, state.to(tl.float64))


@triton.jit(do_not_specialize=["settled", "planned"], do_not_specialize_on_alignment=POINTERS)
def decide(bounds, do_sample, temperature, top_k, top_p, typical_p, min_p, largest, masses, moments, plans, tallies,
           masses_above, found, lengths, nearer, settled, planned, VOCABULARY: tl.constexpr, PART: tl.constexpr,
           BLOCKS: tl.constexpr, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, PIVOTS: tl.constexpr,
           LIST: tl.constexpr):
    """Finds the boundary of a row's cutoff `settled`, if it has that, and plans the search for that of `planned`."""
    row = tl.program_id(0).to(tl.int64)
    plan, own = plans + row * PLAN, bounds + row * 4
    exact, scale = temperature_of(temperature, do_sample, row)
    state = tl.load(plan + STATE, mask=settled >= 0, other=0.0)
    top = tl.full([], float("inf"), tl.float32)
    mass = tl.zeros([], tl.float64)
    moment = tl.zeros([], tl.float64)
    if is_cut(do_sample, top_k, top_p, typical_p, min_p, row, VOCABULARY):
        top, mass, moment = _join(largest, masses, moments, row, scale, PARTS, PARTS_BLOCK, BLOCKS)
    top_left = top
    lowest = tl.load(own)
    middle = tl.load(own + 1)
    rest = tl.load(own + 2)
    if state != OFF:
        low, high, above, mass_above = bracket(plan, state, settled, tallies, masses_above, row, PARTS, PARTS_BLOCK,
                                               PIVOTS)
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
