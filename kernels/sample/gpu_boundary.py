"""Finds the boundary of a cutoff among listed scores, in Triton: one program searches one list.

A list is seen by a block of lanes: their `pointers`, which go on by `step`, how many scores are `remaining` for each,
and the `most` that there are for any.

The boundary is searched: each pass over the list adds up what lies above each of a few pivots, and tells which values
at all lie between the last two bounds. Sums are float32 and always made in the same order, so that they are monotone.
"""

import triton
import triton.language as tl

from penstock.kernels.softmax_gpu import LOWEST_KEY, NAN_KEY, from_key, to_key, weigh

PIVOTS = tl.constexpr(8)
WINDOW = tl.constexpr(20.0)  # how far below the top the first pivots reach, in natural logarithms of weights
SMOOTH_PASSES = tl.constexpr(3)  # that have equal distances between pivots; later ones take turns with equal keys
COUNT, MASS, TYPICAL = (tl.constexpr(number) for number in range(3))
"""The kinds of cutoffs: they keep so many of the largest scores; or so large a share of the mass, of the largest
scores, or of those nearest to the expectation."""


@triton.jit
def value_of(score, mode, middle, rest):
    """Returns the values of which a cutoff keeps the largest: scores, or their nearness to a middle, the sum of two
    floats."""
    return tl.where(mode == TYPICAL, -tl.abs((score - middle) - rest), score)


@triton.jit
def view_list(found, lengths, row, PART: tl.constexpr, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr,
              LIST: tl.constexpr):
    """Returns the view of what was found in the parts of a row."""
    lane = tl.arange(0, LIST)
    part, place = lane // (LIST // PARTS_BLOCK), lane % (LIST // PARTS_BLOCK)
    length = tl.load(lengths + row * PARTS + part, mask=part < PARTS, other=0)
    return found + (row * PARTS + part) * PART + place, length - place, tl.max(length, axis=0)


@triton.jit
def listed_sum(pointers, remaining, most, step, is_counted, top, scale, lowest):
    """Returns how many of the listed scores are not below the lowest, or their mass."""
    total = tl.zeros(remaining.shape, tl.float32)
    for start in range(0, most, step):
        score = tl.load(pointers + start, mask=start < remaining, other=-float("inf"))
        weight = tl.where(is_counted, 1.0, weigh(score, top, scale))
        total += tl.where((score >= lowest) & (score > -float("inf")), weight, 0.0)
    return tl.sum(total, axis=0)


@triton.jit
def listed_largest(pointers, remaining, most, step, mode, middle, rest, boundary):
    """Returns the largest of the listed scores whose values are not below the boundary."""
    largest = tl.full(remaining.shape, -float("inf"), tl.float32)
    for start in range(0, most, step):
        score = tl.load(pointers + start, mask=start < remaining, other=-float("inf"))
        is_left = value_of(score, mode, middle, rest) >= boundary
        largest = tl.maximum(largest, tl.where(is_left, score, -float("inf")))
    return tl.max(largest, axis=0)


@triton.jit
def _pivots(low_key, high_key, low, high, number, scale):
    """Returns ascending keys from low to high, the first one low."""
    place = tl.arange(0, PIVOTS)
    start = from_key(low_key)
    stop = from_key(high_key)
    if number == 0:
        stop = high
        start = tl.maximum(low, high - WINDOW / scale)
    keys = to_key(start + (stop - start) * (place.to(tl.float32) / PIVOTS))
    if (number >= SMOOTH_PASSES) & (number % 2 == 1):
        span = high_key.to(tl.int64) - low_key.to(tl.int64)
        keys = (low_key.to(tl.int64) + (span * place + PIVOTS - 1) // PIVOTS).to(tl.int32)
    return tl.where(place == 0, low_key, tl.minimum(tl.maximum(keys, low_key), high_key))


@triton.jit
def find_boundary(pointers, remaining, most, step, mode, wanted, above, low, high, passes, top, scale, lowest, middle,
                  rest):
    """Returns the largest listed value that so many tokens, or so large a mass, are not below, those `above` the list
    included: the smallest one if there are too few, and low if the list is empty. high is finite.

    After so many passes it may return a smaller value.
    """
    low_key = tl.full([], LOWEST_KEY, tl.int32)
    high_key = tl.full([], NAN_KEY, tl.int32)
    number = tl.full([], 0, tl.int32)
    place = tl.arange(0, PIVOTS)
    while (low_key < high_key) & (number < passes):
        pivots = _pivots(low_key, high_key, low, high, number, scale)
        sums = tl.zeros([PIVOTS], tl.float32)
        least = tl.full(remaining.shape, NAN_KEY, tl.int32)
        greatest = tl.full(remaining.shape, LOWEST_KEY, tl.int32)
        for start in range(0, most, step):
            score = tl.load(pointers + start, mask=start < remaining, other=-float("inf"))
            weight = tl.where(mode == COUNT, 1.0, weigh(score, top, scale))
            weight = tl.where((score >= lowest) & (score > -float("inf")), weight, 0.0)
            key = to_key(value_of(score, mode, middle, rest))
            sums += tl.sum(tl.where(key[None, :] >= pivots[:, None], weight[None, :], 0.0), axis=1)
            is_between = (key >= low_key) & (key <= high_key) & (weight > 0)
            least = tl.minimum(least, tl.where(is_between, key, NAN_KEY))
            greatest = tl.maximum(greatest, tl.where(is_between, key, LOWEST_KEY))
        is_enough = sums.to(tl.float64) + above >= wanted
        chosen = tl.maximum(tl.sum(is_enough.to(tl.int32), axis=0) - 1, 0)
        next_key = tl.min(tl.where(place == chosen + 1, pivots, NAN_KEY), axis=0)
        high_key = tl.minimum(tl.where(chosen + 1 < PIVOTS, next_key - 1, high_key), tl.max(greatest, axis=0))
        low_key = tl.maximum(tl.max(tl.where(place == chosen, pivots, LOWEST_KEY), axis=0), tl.min(least, axis=0))
        number += 1
    return tl.where(low_key < NAN_KEY, from_key(low_key), low)


@triton.jit
def lowest_score(top, min_p, temperature):
    """Returns the lowest score of a token that is at least min_p times as likely as one of the score `top`."""
    exact = top.to(tl.float64) + temperature * tl.log(tl.minimum(min_p, 1.0).to(tl.float64))
    exact = tl.maximum(exact, -3.4028234663852886e38)
    rounded = exact.to(tl.float32)
    return tl.where(rounded.to(tl.float64) < exact, from_key(to_key(rounded) + 1), rounded)
