"""Finds what top-k, top-p, typical-p and min-p keep of a row, in Triton, without a sort: tokens up to a boundary.

The boundary is searched: each pass over the row adds up what lies above each of a few pivots, and tells which tokens
at all lie between the last two bounds. Sums are float32 and always made in the same order, so that they are monotone.
"""

import triton
import triton.language as tl

from penstock.kernels.softmax_gpu import INFINITE_KEY, LOWEST_KEY, NAN_KEY, from_key, is_kept, to_key, weigh

PIVOTS = tl.constexpr(8)
WINDOW = tl.constexpr(20.0)  # how far below the top the first pivots reach, in natural logarithms of weights
SMOOTH_PASSES = tl.constexpr(3)  # that have equal distances between pivots; later ones take turns with equal keys
MODES = tl.constexpr(3)
COUNT = tl.constexpr(0)
TYPICAL = tl.constexpr(2)


@triton.jit
def find_largest(scores, lowest, middle, rest, farthest, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the largest of the scores that are kept; NaN if there is one."""
    largest = tl.full([BLOCK], LOWEST_KEY, tl.int32)
    for start in range(0, VOCABULARY, BLOCK):
        token = start + tl.arange(0, BLOCK)
        score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
        is_left = is_kept(score, lowest, middle, rest, farthest) | (score != score)
        largest = tl.maximum(largest, tl.where(is_left, to_key(score), LOWEST_KEY))
    return from_key(tl.max(largest, axis=0))


@triton.jit
def _moments(scores, top, scale, lowest, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the mean of the differences of the scores from the top, float64."""
    mass = tl.zeros([BLOCK], tl.float64)
    first = tl.zeros([BLOCK], tl.float64)
    for start in range(0, VOCABULARY, BLOCK):
        token = start + tl.arange(0, BLOCK)
        score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
        weight = tl.where(score >= lowest, weigh(score, top, scale), 0.0)
        mass += weight.to(tl.float64)
        first += weight.to(tl.float64) * tl.where(weight > 0, score - top, 0.0).to(tl.float64)
    return tl.sum(first, axis=0) / tl.sum(mass, axis=0)


@triton.jit
def _pivots(low, high, number, mode, top, scale):
    """Returns ascending keys from low to high, the first one low."""
    place = tl.arange(0, PIVOTS)
    start = from_key(low)
    stop = from_key(high)
    if number == 0:
        stop = tl.where(mode == TYPICAL, 0.0, top)
        start = stop - WINDOW / scale
    keys = to_key(start + (stop - start) * (place.to(tl.float32) / PIVOTS))
    if (number >= SMOOTH_PASSES) & (number % 2 == 1):
        span = high.to(tl.int64) - low.to(tl.int64)
        keys = (low.to(tl.int64) + (span * place + PIVOTS - 1) // PIVOTS).to(tl.int32)
    return tl.where(place == 0, low, tl.minimum(tl.maximum(keys, low), high))


@triton.jit
def _boundary(scores, mode, wanted, top, scale, lowest, middle, rest, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the largest value that so many tokens, or so large a share of the kept mass, are not below."""
    low = tl.full([], LOWEST_KEY, tl.int32)
    high = tl.full([], NAN_KEY, tl.int32)
    number = tl.full([], 0, tl.int32)
    place = tl.arange(0, PIVOTS)
    while low < high:
        pivots = _pivots(low, high, number, mode, top, scale)
        sums = tl.zeros([PIVOTS], tl.float32)
        least = tl.full([BLOCK], NAN_KEY, tl.int32)
        most = tl.full([BLOCK], LOWEST_KEY, tl.int32)
        for start in range(0, VOCABULARY, BLOCK):
            token = start + tl.arange(0, BLOCK)
            score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
            weight = tl.where(mode == COUNT, 1.0, weigh(score, top, scale))
            weight = tl.where((score >= lowest) & (score > -float("inf")), weight, 0.0)
            key = to_key(tl.where(mode == TYPICAL, -tl.abs((score - middle) - rest), score))
            sums += tl.sum(tl.where(key[None, :] >= pivots[:, None], weight[None, :], 0.0), axis=1)
            is_between = (key >= low) & (key <= high) & (weight > 0)
            least = tl.minimum(least, tl.where(is_between, key, NAN_KEY))
            most = tl.maximum(most, tl.where(is_between, key, LOWEST_KEY))
        if (number == 0) & (mode != COUNT):
            wanted = wanted * tl.max(sums, axis=0)
        chosen = tl.maximum(tl.sum((sums >= wanted).to(tl.int32), axis=0) - 1, 0)
        above = tl.min(tl.where(place == chosen + 1, pivots, NAN_KEY), axis=0)
        high = tl.minimum(tl.where(chosen + 1 < PIVOTS, above - 1, high), tl.max(most, axis=0))
        low = tl.maximum(tl.max(tl.where(place == chosen, pivots, LOWEST_KEY), axis=0), tl.min(least, axis=0))
        number += 1
    return from_key(low)


@triton.jit
def _lowest_score(top, min_p, temperature):
    """Returns the lowest score of a token that is at least min_p times as likely as one of the score `top`."""
    exact = top.to(tl.float64) + temperature * tl.log(tl.minimum(min_p, 1.0).to(tl.float64))
    exact = tl.maximum(exact, -3.4028234663852886e38)
    rounded = exact.to(tl.float32)
    return tl.where(rounded.to(tl.float64) < exact, from_key(to_key(rounded) + 1), rounded)


@triton.jit
def cut(scores, temperature, scale, top_k, top_p, typical_p, min_p, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    """Returns what top-k, then top-p, then typical-p, then min-p leave of a row: the arguments of `is_kept`."""
    infinity = tl.full([], float("inf"), tl.float32)
    lowest = -infinity
    middle = tl.zeros([], tl.float32)
    rest = tl.zeros([], tl.float32)
    farthest = infinity
    top = find_largest(scores, lowest, middle, rest, farthest, VOCABULARY, BLOCK)
    if to_key(tl.abs(top)) < INFINITE_KEY:
        for mode in range(0, MODES):
            wanted = top_k.to(tl.float32)
            is_on = (top_k > 0) & (top_k < VOCABULARY)
            if mode == TYPICAL:
                wanted = typical_p
                is_on = typical_p < 1
            elif mode != COUNT:
                wanted = top_p
                is_on = top_p < 1
            if is_on:
                if mode == TYPICAL:
                    exact = top.to(tl.float64) + _moments(scores, top, scale, lowest, VOCABULARY, BLOCK)
                    middle = exact.to(tl.float32)
                    rest = (exact - middle.to(tl.float64)).to(tl.float32)
                found = _boundary(scores, mode, wanted, top, scale, lowest, middle, rest, VOCABULARY, BLOCK)
                if mode == TYPICAL:
                    farthest = -found
                else:
                    lowest = tl.maximum(lowest, found)
        if min_p > 0:
            if typical_p < 1:
                top = find_largest(scores, lowest, middle, rest, farthest, VOCABULARY, BLOCK)
            lowest = tl.maximum(lowest, _lowest_score(top, min_p, temperature))
    return lowest, middle, rest, farthest
