"""Softmax over the vocabulary in Triton: a program for each part of a row, and one that joins a row's parts in a fixed
order. The parts depend on the vocabulary alone, so a row has the same bits in any batch."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PART = 2048  # tokens of a program
BLOCK = 256  # of them, at a time
LEAST_WIDTH = 8  # of the likeliest tokens, and then the powers of two: so few kernels are compiled
NAN_KEY = tl.constexpr(0x7FFFFFFF)
INFINITE_KEY = tl.constexpr(0x7F800000)
LOWEST_KEY = tl.constexpr(-0x80000000)
NOBODY = tl.constexpr(-0x8000000000000000)
"""A number below the rank of every token, which has the token's key and id."""


def parts_of(vocabulary: int) -> tuple[int, int]:
    """Returns how many tokens a program takes of so many, and how many of them at a time."""
    part = min(PART, max(16, triton.next_power_of_2(vocabulary)))
    return part, min(BLOCK, part)


class Parts:
    """Holds the results of the programs of a row's parts for the program that joins them."""

    def __init__(self, logits: Tensor, top_width: int) -> None:
        num_rows, vocabulary = logits.shape
        part, block = parts_of(vocabulary)
        num_parts = triton.cdiv(vocabulary, part)
        found_width = top_width and max(LEAST_WIDTH, triton.next_power_of_2(top_width))

        def empty(dtype: torch.dtype, width: int = 1) -> Tensor:
            return torch.empty(num_rows, num_parts, width, dtype=dtype, device=logits.device)

        self.tensors = (empty(torch.int64), empty(torch.float32), empty(torch.float32), empty(torch.int64),
                        empty(torch.int64, found_width))
        self.grid = (num_rows, num_parts)
        self.split: dict[str, Any] = {
            "VOCABULARY": vocabulary, "PART": part, "BLOCK": block, "WIDTH": found_width,
            "num_warps": max(1, block // 64)}
        self.join: dict[str, Any] = {
            "VOCABULARY": vocabulary, "PARTS": num_parts, "WIDTH": found_width,
            "PARTS_BLOCK": triton.next_power_of_2(num_parts), "num_warps": 1}


@triton.jit
def to_key(x):
    """Returns an integer in the order of floats, with -0 as 0 and NaN above all."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(x == x, tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits), NAN_KEY)


@triton.jit
def from_key(key):
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def to_rank(key, token):
    """Returns an integer that is larger for the larger key, and of equal ones for the lower token."""
    return (key.to(tl.int64) << 32) | (0x7FFFFFFF - token).to(tl.int64)


@triton.jit
def rank_token(rank):
    return 0x7FFFFFFF - (rank & 0x7FFFFFFF)


@triton.jit
def rank_key(rank):
    return (rank >> 32).to(tl.int32)


@triton.jit
def is_kept(score, lowest, middle, rest, farthest):
    """Tells which scores the cutoffs leave: large ones, not far from a middle that is the sum of two floats."""
    return (score >= lowest) & (tl.abs((score - middle) - rest) <= farthest)


@triton.jit
def weigh(score, top, scale):
    """Returns e^((score - top) * scale) of scores up to the top; 0 if they are too far below."""
    return tl.exp(tl.maximum((score - top) * scale, -1e4))


@triton.jit
def _arrival(weight, seed, token, position, branch):
    """Returns weight / E, with E = -log(u) the token's noise: who has the largest has the largest score - log(E).

    For u near 1, what it lacks is taken from the random word, where it is exact: -log(1 - c) is then found from the
    logarithm of a = 1 - c as rounded, times c / (1 - a).
    """
    word, _, _, _ = tl.philox(seed, token.to(tl.uint32), position, branch, tl.zeros_like(position))
    is_upper = word >= 0x80000000
    part = (tl.where(is_upper, word ^ 0xFFFFFFFF, word).to(tl.float32) + 0.5) * 2.3283064365386963e-10  # 2^-32
    rounded = tl.where(is_upper, 1.0 - part, part)
    log = -tl.log(rounded)
    lack = 1.0 - rounded
    is_bent = is_upper & (lack > 0)
    return weight * tl.where(is_bent, lack, 1.0) / tl.where(is_bent, log * part, tl.where(is_upper, part, log))


@triton.jit
def split_row(scores, begin, largest, tops, maxima, sums, leads, scale, lowest, middle, rest, farthest, seed, position,
              branch, VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, IS_RANDOM: tl.constexpr):
    """Writes, for one part of a row, the rank of the top of all scores; and of those that are kept the maximum, the sum
    of their weights relative to it, and who leads the race. Without IS_RANDOM all are kept and none races.

    A block whose largest score is too low is passed over: `largest` has one for each block of the part, which nobody
    reads where all scores are kept."""
    lane = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], LOWEST_KEY, tl.int32)
    top_token = tl.zeros([BLOCK], tl.int32)
    lead = tl.full([BLOCK], -1.0, tl.float32)
    lead_token = tl.zeros([BLOCK], tl.int32)
    total = tl.zeros([BLOCK], tl.float32)
    maximum = tl.full([BLOCK], -float("inf"), tl.float32)
    has_bound = lowest > -float("inf")
    for start in range(begin, tl.minimum(begin + PART, VOCABULARY), BLOCK):
        is_read = tl.load(largest + (start - begin) // BLOCK, mask=has_bound, other=float("inf")) >= lowest
        if is_read:
            token = start + lane
            is_token = token < VOCABULARY
            score = tl.load(scores + token, mask=is_token, other=-float("inf"))
            key = tl.where(is_token, to_key(score), LOWEST_KEY)
            top_token = tl.where(key > top, token, top_token)
            top = tl.maximum(key, top)
            is_left = is_token & (score > -float("inf"))
            if IS_RANDOM:
                is_left &= is_kept(score, lowest, middle, rest, farthest)
            # Each lane is relative to a maximum of its own: of it and the score, one has the weight 1.
            is_first = maximum == -float("inf")
            is_higher = is_left & (score > maximum)
            ratio = weigh(-tl.abs(score - tl.where(is_first, 0.0, maximum)), 0.0, scale)
            shrink = tl.where(is_higher, tl.where(is_first, 0.0, ratio), 1.0)
            weight = tl.where(is_left, tl.where(is_higher, 1.0, ratio), 0.0)
            maximum = tl.where(is_higher, score, maximum)
            total = total * shrink + weight
            if IS_RANDOM:
                arrival = tl.where(is_left, _arrival(weight, seed, token, position, branch), -1.0)
                lead = lead * shrink
                lead_token = tl.where(arrival > lead, token, lead_token)
                lead = tl.maximum(arrival, lead)
    tl.store(tops, tl.max(to_rank(top, top_token), axis=0))
    highest = tl.max(maximum, axis=0)
    shrink = weigh(maximum, tl.where(highest == -float("inf"), 0.0, highest), scale)
    tl.store(maxima, highest)
    tl.store(sums, tl.sum(total * shrink, axis=0))
    if IS_RANDOM:
        tl.store(leads, tl.max(to_rank(to_key(lead * shrink), lead_token), axis=0))


@triton.jit
def find_top_logprobs(scores, begin, found, count, lowest, middle, rest, farthest, VOCABULARY: tl.constexpr,
                      PART: tl.constexpr, BLOCK: tl.constexpr):
    """Writes the ranks of the `count` likeliest tokens of a row's part, one in each pass; NOBODY after the last."""
    previous = tl.full([], 0x7FFFFFFFFFFFFFFF, tl.int64)
    for i in range(0, count):
        best = tl.full([], NOBODY, tl.int64)
        for start in range(begin, tl.minimum(begin + PART, VOCABULARY), BLOCK):
            token = start + tl.arange(0, BLOCK)
            score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
            rank = to_rank(to_key(score), token)
            is_left = (score > -float("inf")) & is_kept(score, lowest, middle, rest, farthest) & (rank < previous)
            best = tl.maximum(best, tl.max(tl.where(is_left, rank, NOBODY), axis=0))
        tl.store(found + i, best)
        previous = best


@triton.jit
def join_tops(tops, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr):
    part = tl.arange(0, PARTS_BLOCK)
    return tl.max(tl.load(tops + part, mask=part < PARTS, other=NOBODY), axis=0)


@triton.jit
def is_number(rank):
    """Tells whether a top's score is finite."""
    return (rank_key(rank) < INFINITE_KEY) & (rank_key(rank) > to_key(-float("inf") + tl.zeros([], tl.float32)))


@triton.jit
def join_sums(maxima, sums, scale, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr):
    """Returns a row's maximum and the logarithm of the sum of its weights, float64."""
    part = tl.arange(0, PARTS_BLOCK)
    maximum = tl.load(maxima + part, mask=part < PARTS, other=-float("inf"))
    top = tl.max(maximum, axis=0)
    base = tl.where(top == -float("inf"), 0.0, top)
    total = tl.sum(tl.load(sums + part, mask=part < PARTS, other=0.0) * weigh(maximum, base, scale), axis=0)
    return base.to(tl.float64), tl.log(total.to(tl.float64))


@triton.jit
def write_top_logprobs(ids, logprobs, width, found, count, is_finite, top, temperature, log_total, PARTS: tl.constexpr,
                       PARTS_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Merges into `width` places what `find_top_logprobs` found in the parts of a row, the largest of each first."""
    part = tl.arange(0, PARTS_BLOCK)
    place = tl.zeros([PARTS_BLOCK], tl.int32)
    is_there = (part < PARTS) & is_finite
    count = tl.minimum(count, WIDTH)
    ranks = tl.load(found + part * WIDTH, mask=is_there & (count > 0), other=NOBODY)
    for i in range(0, width):
        best = tl.max(ranks, axis=0)
        is_found = (best > NOBODY) & (i < count)
        score = from_key(rank_key(best)).to(tl.float64)
        logprob = (score - top) / temperature - log_total
        tl.store(ids + i, tl.where(is_found, rank_token(best), -1))
        tl.store(logprobs + i, tl.where(is_found, logprob, -float("inf")).to(tl.float32))
        is_next = is_there & (ranks == best)
        place += is_next.to(tl.int32)
        following = tl.load(found + part * WIDTH + place, mask=is_next & (place < count), other=NOBODY)
        ranks = tl.where(is_next, following, ranks)
