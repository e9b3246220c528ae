"""Samples in Triton, without a sort and without waiting for the device.

The whole grid adjusts scores and finds cutoffs, in launches that pass over the rows which ask for nothing of it. Then
each part of a row is read once, by a program of its own: for the softmax, and for the race of the tokens, which the
largest weight / E wins, and that is the largest score - log(E). A last program joins a row's parts in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.sample.gpu_adjust import LOGPROBS, POINTERS, WORD, Scores, mask_of, scores_of
from penstock.kernels.sample.gpu_cutoffs import Cutoffs
from penstock.kernels.sample.gpu_plan import temperature_of
from penstock.kernels.sample.parameters import CUTOFFS, Biases, History, Sampled, SampleParameters
from penstock.kernels.sample.ragged import check_biases, check_history, check_masks, is_penalised
from penstock.kernels.softmax_gpu import (
    NOBODY,
    Parts,
    find_top_logprobs,
    from_key,
    is_number,
    join_sums,
    join_tops,
    rank_key,
    rank_token,
    split_row,
    to_key,
    to_rank,
    weigh,
    write_top_logprobs,
)
from penstock.kernels.top_logprobs import TopLogprobs

COUNTS = ["num_masks", "width"]
"""Whatever is known of these at a launch, no kernel is made for it."""


@triton.jit(do_not_specialize_on_alignment=POINTERS)
def _split(logits, adjusted, is_adjusted, bounds, do_sample, temperature, seed, position, branch, top_n, largest,
           tops, maxima, sums, leads, found,
           VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = row * tl.num_programs(1) + tl.program_id(1)
    begin = tl.program_id(1) * PART
    scores = scores_of(logits, adjusted, is_adjusted, row, VOCABULARY)
    lowest = tl.load(bounds + row * 4)
    middle = tl.load(bounds + row * 4 + 1)
    rest = tl.load(bounds + row * 4 + 2)
    farthest = tl.load(bounds + row * 4 + 3)
    _, scale = temperature_of(temperature, do_sample, row)
    own = largest + index * (PART // BLOCK)
    if tl.load(do_sample + row):
        split_row(scores, begin, own, tops + index, maxima + index, sums + index, leads + index, scale, lowest, middle,
                  rest, farthest, tl.load(seed + row), tl.load(position + row).to(tl.uint32),
                  tl.load(branch + row).to(tl.uint32), VOCABULARY, PART, BLOCK, True)
    else:
        split_row(scores, begin, own, tops + index, maxima + index, sums + index, leads, scale, lowest, middle, rest,
                  farthest, row, row, row, VOCABULARY, PART, BLOCK, False)
    if WIDTH:
        count = tl.minimum(tl.load(top_n + row), WIDTH)
        find_top_logprobs(scores, begin, found + index * WIDTH, count, lowest, middle, rest, farthest, VOCABULARY, PART,
                          BLOCK)


@triton.jit
def _lowest_allowed(mask, VOCABULARY: tl.constexpr, WORDS: tl.constexpr):
    """Returns the lowest token that a mask allows; the last one if there is none."""
    found = tl.full([], VOCABULARY - 1, tl.int32)
    for start in range(0, (VOCABULARY + WORD - 1) // WORD, WORDS):
        place = start + tl.arange(0, WORDS)[:, None]
        word = tl.load(mask + place, mask=place * WORD < VOCABULARY, other=0)
        bit = tl.arange(0, WORD)[None, :]
        token = tl.where((word >> bit) & 1 == 1, place * WORD + bit, VOCABULARY - 1)
        found = tl.minimum(found, tl.min(tl.min(token, axis=1), axis=0))
    return found


@triton.jit
def _winner(maxima, leads, scale, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr):
    part = tl.arange(0, PARTS_BLOCK)
    maximum = tl.load(maxima + part, mask=part < PARTS, other=-float("inf"))
    top = tl.max(maximum, axis=0)
    base = tl.where(top == -float("inf"), 0.0, top)
    lead = tl.load(leads + part, mask=part < PARTS, other=NOBODY)
    arrival = tl.where(part < PARTS, from_key(rank_key(lead)) * weigh(maximum, base, scale), -2.0)
    return rank_token(tl.max(to_rank(to_key(arrival), rank_token(lead)), axis=0))


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=POINTERS)
def _join(logits, adjusted, is_adjusted, do_sample, temperature, mask, masks, num_masks, top_n, tops, maxima, sums,
          leads, found, ids, logprobs, top_ids, top_logprobs, width,
          VOCABULARY: tl.constexpr, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, WIDTH: tl.constexpr,
          WORDS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scores = scores_of(logits, adjusted, is_adjusted, row, VOCABULARY)
    exact, scale = temperature_of(temperature, do_sample, row)
    best = join_tops(tops + row * PARTS, PARTS, PARTS_BLOCK)
    is_finite = is_number(best)
    token = rank_token(best)
    row_mask, has_mask = mask_of(masks, tl.load(mask + row), num_masks, VOCABULARY)
    if is_finite:
        if tl.load(do_sample + row):
            token = _winner(maxima + row * PARTS, leads + row * PARTS, scale, PARTS, PARTS_BLOCK)
    elif has_mask & (rank_key(best) < 0):
        token = _lowest_allowed(row_mask, VOCABULARY, WORDS).to(tl.int64)
    top, log_total = join_sums(maxima + row * PARTS, sums + row * PARTS, scale, PARTS, PARTS_BLOCK)
    if tl.load(is_adjusted + row) == LOGPROBS:
        top = tl.zeros([], tl.float64)
        log_total = tl.zeros([], tl.float64)
    logprob = (tl.load(scores + token).to(tl.float64) - top) / exact - log_total
    tl.store(ids + row, token)
    tl.store(logprobs + row, tl.where(is_finite, logprob, float("nan")).to(tl.float32))
    if WIDTH:
        write_top_logprobs(top_ids + row * width, top_logprobs + row * width, width, found + row * PARTS * WIDTH,
                           tl.load(top_n + row), is_finite, top, exact, log_total, PARTS, PARTS_BLOCK, WIDTH)


def sample(
    logits: Tensor, parameters: SampleParameters, history: History, biases: Biases, masks: Tensor, top_width: int
) -> Sampled:
    num_rows, vocabulary = logits.shape
    p, device = parameters, logits.device
    if not logits.is_cuda:
        _check(parameters, history, biases, masks, vocabulary)
    ids, logprobs = torch.empty(num_rows, dtype=torch.int64, device=device), torch.empty(num_rows, device=device)
    top = TopLogprobs.empty(num_rows, top_width, device)
    sampled = Sampled(ids, logprobs, top)
    if not num_rows:
        return sampled
    scores = Scores(logits, p, history, biases, masks)
    parts = Parts(logits, top_width)
    largest = logits
    if p.passes & CUTOFFS.keys():
        cutoffs = Cutoffs(scores, p)
        cutoffs.find()
        largest = cutoffs.largest
    _split[parts.grid](
        *scores.tensors, p.do_sample, p.temperature, p.seed, p.position, p.branch, p.top_n, largest, *parts.tensors,
        **parts.split)
    _join[parts.grid[:1]](
        *scores.tensors[:3], p.do_sample, p.temperature, p.mask, masks, len(masks), p.top_n, *parts.tensors, ids,
        logprobs, top.ids, top.logprobs, top_width, WORDS=128, **parts.join)
    return sampled


def _check(parameters: SampleParameters, history: History, biases: Biases, masks: Tensor, vocabulary: int) -> None:
    """Raises ValueError for ids and masks that do not fit: on a processor, where looking costs nothing."""
    check_biases(biases, vocabulary)
    check_masks(parameters, masks, vocabulary)
    if is_penalised(parameters, history).any():
        check_history(history, vocabulary)
