"""Samples in Triton, without a sort and without waiting for the device.

A program for each row adjusts its scores and finds its cutoffs, if it has any. Then each part of a row is read once, by
a program of its own: for the softmax, and for the race of the tokens, which the largest weight / E wins, and that is
the largest score - log(E). A last program joins a row's parts in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.sample.gpu_adjust import WORD, adjust, has_bans
from penstock.kernels.sample.gpu_cutoffs import cut, find_largest
from penstock.kernels.sample.parameters import COLUMNS, Biases, History, Sampled, SampleParameters
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

COUNTS = ["num_history", "num_biases", "num_masks", "width"]
POINTERS = [*COLUMNS, "history_ids", "history_offsets", "bias_ids", "bias_values", "bias_offsets", "masks"]
"""Whatever is known of these at a launch, no kernel is made for it: that would be compiled amid the serving."""
BLOCK = 2048  # tokens at a time of a program that has a whole row


@triton.jit
def _temperature(temperature, do_sample, row):
    """Returns the temperature in float64, and what scores are multiplied with: within what float32 can work with."""
    value = tl.where(tl.load(do_sample + row), tl.maximum(tl.load(temperature + row), 1.1754943508222875e-38), 1.0)
    scale = 1.0 / tl.minimum(tl.maximum(value, 8.077935669463161e-28), 1.2379400392853803e27)  # 2^-90 and 2^90
    return value.to(tl.float64), scale


@triton.jit
def _span(offsets, row, total):
    """Returns from where to where a row's ids are, never outside of all of them."""
    begin = tl.minimum(tl.maximum(tl.load(offsets + row), 0), total)
    return begin, tl.minimum(tl.maximum(tl.load(offsets + row + 1), begin), total)


@triton.jit
def _mask_of(masks, number, num_masks, VOCABULARY: tl.constexpr):
    has_mask = (number >= 0) & (number < num_masks)
    return masks + tl.where(has_mask, number, 0) * ((VOCABULARY + WORD - 1) // WORD), has_mask


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=POINTERS)
def _prepare(logits, adjusted, is_adjusted, bounds, places, counts, prompt_length, repetition_penalty, share_penalty,
             frequency_penalty, presence_penalty, mask, do_sample, temperature, top_k, top_p, typical_p, min_p,
             history_ids, history_offsets, num_history, bias_ids, bias_values, bias_offsets, num_biases,
             masks, num_masks, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    """Writes a row's scores to `adjusted`, if they are not its logits, and its four `bounds`."""
    row = tl.program_id(0).to(tl.int64)
    infinity = tl.full([], float("inf"), tl.float32)
    zero = tl.zeros([], tl.float32)
    repetition = tl.load(repetition_penalty + row)
    share = tl.load(share_penalty + row)
    frequency = tl.load(frequency_penalty + row)
    presence = tl.load(presence_penalty + row)
    begin, end = _span(history_offsets, row, num_history)
    is_penalised = (repetition != 1) | (share != 0) | (frequency != 0) | (presence != 0)
    end = tl.where(is_penalised, end, begin)
    bias_begin, bias_end = _span(bias_offsets, row, num_biases)
    row_mask, has_mask = _mask_of(masks, tl.load(mask + row), num_masks, VOCABULARY)
    is_changed = (begin < end) | (bias_begin < bias_end) | has_mask
    tl.store(is_adjusted + row, is_changed.to(tl.int32))
    scores = logits + row * VOCABULARY
    if is_changed:
        scores = adjusted + row * VOCABULARY
        attempts = tl.full([], 1, tl.int32)
        if bias_begin < bias_end:
            attempts += has_bans(bias_values, bias_begin, bias_end).to(tl.int32)
        with_bans = True
        while attempts > 0:
            adjust(logits + row * VOCABULARY, scores, row_mask, has_mask, history_ids, places, counts, begin, end,
                   tl.load(prompt_length + row), repetition.to(tl.float64), share.to(tl.float64),
                   frequency.to(tl.float64), presence.to(tl.float64), bias_ids, bias_values, bias_begin, bias_end,
                   with_bans, VOCABULARY, BLOCK)
            tl.debug_barrier()
            attempts -= 1
            if attempts > 0:
                largest = find_largest(scores, -infinity, zero, zero, infinity, VOCABULARY, BLOCK)
                attempts = tl.where(largest == -infinity, attempts, 0)
                tl.debug_barrier()
            with_bans = False
    lowest = -infinity
    middle = zero
    rest = zero
    farthest = infinity
    count = tl.load(top_k + row)
    mass = tl.load(top_p + row)
    typical = tl.load(typical_p + row)
    least = tl.load(min_p + row)
    is_cut = ((count > 0) & (count < VOCABULARY)) | (mass < 1) | (typical < 1) | (least > 0)
    if tl.load(do_sample + row) & is_cut:
        exact, scale = _temperature(temperature, do_sample, row)
        lowest, middle, rest, farthest = cut(scores, exact, scale, count, mass, typical, least, VOCABULARY, BLOCK)
    tl.store(bounds + row * 4, lowest)
    tl.store(bounds + row * 4 + 1, middle)
    tl.store(bounds + row * 4 + 2, rest)
    tl.store(bounds + row * 4 + 3, farthest)


@triton.jit
def _scores_of(logits, adjusted, is_adjusted, row, VOCABULARY: tl.constexpr):
    scores = logits + row * VOCABULARY
    if tl.load(is_adjusted + row) != 0:
        scores = adjusted + row * VOCABULARY
    return scores


@triton.jit(do_not_specialize_on_alignment=POINTERS)
def _split(logits, adjusted, is_adjusted, bounds, do_sample, temperature, seed, position, branch, top_n,
           tops, maxima, sums, leads, found,
           VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = row * tl.num_programs(1) + tl.program_id(1)
    begin = tl.program_id(1) * PART
    scores = _scores_of(logits, adjusted, is_adjusted, row, VOCABULARY)
    lowest = tl.load(bounds + row * 4)
    middle = tl.load(bounds + row * 4 + 1)
    rest = tl.load(bounds + row * 4 + 2)
    farthest = tl.load(bounds + row * 4 + 3)
    _, scale = _temperature(temperature, do_sample, row)
    if tl.load(do_sample + row):
        split_row(scores, begin, tops + index, maxima + index, sums + index, leads + index, scale, lowest, middle, rest,
                  farthest, tl.load(seed + row), tl.load(position + row).to(tl.uint32),
                  tl.load(branch + row).to(tl.uint32), VOCABULARY, PART, BLOCK, True)
    else:
        split_row(scores, begin, tops + index, maxima + index, sums + index, leads, scale, lowest, middle, rest,
                  farthest, row, row, row, VOCABULARY, PART, BLOCK, False)
    if WIDTH:
        count = tl.minimum(tl.load(top_n + row), WIDTH)
        find_top_logprobs(scores, begin, found + index * WIDTH, count, lowest, middle, rest, farthest, VOCABULARY, PART,
                          BLOCK)


@triton.jit
def _lowest_allowed(mask, VOCABULARY: tl.constexpr, WORDS: tl.constexpr, WORD: tl.constexpr):
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
          WORDS: tl.constexpr, WORD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scores = _scores_of(logits, adjusted, is_adjusted, row, VOCABULARY)
    exact, scale = _temperature(temperature, do_sample, row)
    best = join_tops(tops + row * PARTS, PARTS, PARTS_BLOCK)
    is_finite = is_number(best)
    token = rank_token(best)
    row_mask, has_mask = _mask_of(masks, tl.load(mask + row), num_masks, VOCABULARY)
    if is_finite:
        if tl.load(do_sample + row):
            token = _winner(maxima + row * PARTS, leads + row * PARTS, scale, PARTS, PARTS_BLOCK)
    elif has_mask & (rank_key(best) < 0):
        token = _lowest_allowed(row_mask, VOCABULARY, WORDS, WORD).to(tl.int64)
    top, log_total = join_sums(maxima + row * PARTS, sums + row * PARTS, scale, PARTS, PARTS_BLOCK)
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
    can_adjust = len(history.ids) + len(biases.ids) + len(masks) > 0
    adjusted = torch.empty(logits.shape if can_adjust else 0, device=device)
    is_adjusted = torch.empty(num_rows, dtype=torch.int32, device=device)
    bounds = torch.empty(num_rows, 4, device=device)
    places, counts = torch.empty_like(history.ids), torch.empty_like(history.ids)
    block = min(BLOCK, max(16, triton.next_power_of_2(vocabulary)))
    _prepare[(num_rows,)](
        logits, adjusted, is_adjusted, bounds, places, counts, p.prompt_length, p.repetition_penalty, p.share_penalty,
        p.frequency_penalty, p.presence_penalty, p.mask, p.do_sample, p.temperature, p.top_k, p.top_p, p.typical_p,
        p.min_p, history.ids, history.offsets, len(history.ids), biases.ids, biases.values, biases.offsets,
        len(biases.ids), masks, len(masks), VOCABULARY=vocabulary, BLOCK=block, num_warps=max(1, block // 128))
    parts = Parts(logits, top_width)
    _split[parts.grid](
        logits, adjusted, is_adjusted, bounds, p.do_sample, p.temperature, p.seed, p.position, p.branch, p.top_n,
        *parts.tensors, **parts.split)
    _join[parts.grid[:1]](
        logits, adjusted, is_adjusted, p.do_sample, p.temperature, p.mask, masks, len(masks), p.top_n, *parts.tensors,
        ids, logprobs, top.ids, top.logprobs, top_width, WORDS=128, WORD=32, **parts.join)
    return sampled


def _check(parameters: SampleParameters, history: History, biases: Biases, masks: Tensor, vocabulary: int) -> None:
    """Raises ValueError for ids and masks that do not fit: on a processor, where looking costs nothing."""
    check_biases(biases, vocabulary)
    check_masks(parameters, masks, vocabulary)
    if is_penalised(parameters, history).any():
        check_history(history, vocabulary)
