"""Adjusts the rows' scores before anything else, in Triton: a mask and a copy by the whole grid, then penalties on what
the histories hold, by as many programs as share a row's history out, then biases. Rows that want nothing of it cost
nothing: they stay where they are, in the logits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.sample.gpu_logprobs import find_totals, to_logprob, total_of
from penstock.kernels.sample.parameters import COLUMNS, Biases, History, SampleParameters

PART = 16384  # tokens of a program
BLOCK = 2048  # of them, at a time
SHARES = 8  # programs of a history
CHUNK = tl.constexpr(1024)  # ids of a history, at a time
BIAS_CHUNK = tl.constexpr(64)  # biases, each compared with all others of the chunk
WORD = tl.constexpr(32)  # tokens
MARK, COUNT, CHARGE = (tl.constexpr(number) for number in range(3))
"""The passes over a history, one launch each: see `_penalise`."""
LOGITS, LOGPROBS = (tl.constexpr(number) for number in range(1, 3))
"""Of which scores an adjusted row was made. A row that is not adjusted has 0."""
COUNTS = ["num_history", "num_biases", "num_masks", "has_totals"]
POINTERS = [*COLUMNS, "history_ids", "history_offsets", "bias_ids", "bias_values", "bias_offsets", "masks"]
"""Whatever is known of these at a launch, no kernel is made for it: that would be compiled amid the serving."""


@triton.jit
def span(offsets, row, total):
    """Returns from where to where a row's ids are, never outside of all of them."""
    begin = tl.minimum(tl.maximum(tl.load(offsets + row), 0), total)
    return begin, tl.minimum(tl.maximum(tl.load(offsets + row + 1), begin), total)


@triton.jit
def mask_of(masks, number, num_masks, VOCABULARY: tl.constexpr):
    """Returns a row's mask, and whether it has one."""
    has_mask = (number >= 0) & (number < num_masks)
    return masks + tl.where(has_mask, number, 0) * ((VOCABULARY + WORD - 1) // WORD), has_mask


@triton.jit
def _is_allowed(mask, token, has_mask):
    """Tells whether the mask has the bits of tokens; every token is allowed where there is no mask."""
    word = tl.load(mask + token // WORD, mask=has_mask, other=-1)
    return (word >> (token % WORD).to(tl.int32)) & 1 == 1


@triton.jit
def _history_of(row, history_offsets, num_history, repetition_penalty, share_penalty, frequency_penalty,
                presence_penalty):
    """Returns from where to where a row's history is, empty if nothing is penalised, and the penalties in float64."""
    repetition = tl.load(repetition_penalty + row)
    share = tl.load(share_penalty + row)
    frequency = tl.load(frequency_penalty + row)
    presence = tl.load(presence_penalty + row)
    begin, end = span(history_offsets, row, num_history)
    is_penalised = (repetition != 1) | (share != 0) | (frequency != 0) | (presence != 0)
    return (begin, tl.where(is_penalised, end, begin), repetition.to(tl.float64), share.to(tl.float64),
            frequency.to(tl.float64), presence.to(tl.float64))


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=POINTERS)
def _copy(logits, adjusted, is_adjusted, bounds, left, repetition_penalty, share_penalty, frequency_penalty,
          presence_penalty, mask, history_offsets, num_history, bias_offsets, num_biases, masks, num_masks, totals,
          has_totals, VOCABULARY: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr):
    """Tells whether a row is adjusted, and bounds it nowhere. If it is, copies what its mask allows, as
    log-probabilities if it is to have these, and counts the tokens that may be chosen."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end, _, _, _, _ = _history_of(row, history_offsets, num_history, repetition_penalty, share_penalty,
                                         frequency_penalty, presence_penalty)
    bias_begin, bias_end = span(bias_offsets, row, num_biases)
    row_mask, has_mask = mask_of(masks, tl.load(mask + row), num_masks, VOCABULARY)
    top, log_total, is_normalised = total_of(totals, has_totals, row)
    is_changed = (begin < end) | (bias_begin < bias_end) | has_mask
    if part == 0:
        tl.store(is_adjusted + row, tl.where(is_changed, tl.where(is_normalised, LOGPROBS, LOGITS), 0))
        bound = tl.arange(0, 4)
        tl.store(bounds + row * 4 + bound, tl.where(
            bound == 0, -float("inf"), tl.where(bound == 3, float("inf"), 0.0)))
    if is_changed:
        found = tl.zeros([BLOCK], tl.int32)
        for start in range(part * PART, tl.minimum(part * PART + PART, VOCABULARY), BLOCK):
            token = start + tl.arange(0, BLOCK)
            is_token = token < VOCABULARY
            score = tl.load(logits + row * VOCABULARY + token, mask=is_token, other=-float("inf"))
            if is_normalised:
                score = to_logprob(score, top, log_total)
            score = tl.where(_is_allowed(row_mask, token, is_token & has_mask), score, -float("inf"))
            found += (score != -float("inf")).to(tl.int32)
            tl.store(adjusted + row * VOCABULARY + token, score, mask=is_token)
        tl.store(left + row * tl.num_programs(1) + part, tl.sum(found, axis=0))


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=POINTERS)
def _penalise(logits, adjusted, places, counts, prompt_length, repetition_penalty, share_penalty, frequency_penalty,
              presence_penalty, mask, history_ids, history_offsets, num_history, masks, num_masks, totals, has_totals,
              STEP: tl.constexpr, VOCABULARY: tl.constexpr):
    """MARK: each occurrence of an id writes its place in the history where the id's score is to be. One of them stays,
    no matter which. COUNT: there the id is counted, all of it in the lower half of a count, the output in the upper
    half. CHARGE: each occurrence writes the id's score."""
    row = tl.program_id(0).to(tl.int64)
    begin, end, repetition, share, frequency, presence = _history_of(
        row, history_offsets, num_history, repetition_penalty, share_penalty, frequency_penalty, presence_penalty)
    scores = adjusted + row * VOCABULARY
    marks = scores.to(tl.pointer_type(tl.int32))
    row_mask, has_mask = mask_of(masks, tl.load(mask + row), num_masks, VOCABULARY)
    for start in range(begin + tl.program_id(1) * CHUNK, end, tl.num_programs(1) * CHUNK):
        place = start + tl.arange(0, CHUNK)
        token = tl.load(history_ids + place, mask=place < end, other=-1)
        is_token = (token >= 0) & (token < VOCABULARY)
        if STEP == MARK:
            tl.store(marks + token, (place - begin).to(tl.int32), mask=is_token)
            tl.store(counts + place, tl.zeros([CHUNK], tl.int64), mask=place < end)
        elif STEP == COUNT:
            first = begin + tl.load(marks + token, mask=is_token, other=0).to(tl.int64)
            is_output = place - begin >= tl.load(prompt_length + row)
            tl.atomic_add(counts + first, tl.where(is_output, 0x100000001, 1).to(tl.int64), mask=is_token)
            tl.store(places + place, first, mask=is_token)
        else:
            count = tl.load(counts + tl.load(places + place, mask=is_token, other=0), mask=is_token, other=1)
            part = (count & 0xFFFFFFFF).to(tl.float64) / (end - begin).to(tl.float64)
            output = (count >> 32).to(tl.float64)
            score = tl.load(logits + row * VOCABULARY + token, mask=is_token, other=0.0)
            top, log_total, is_normalised = total_of(totals, has_totals, row)
            if is_normalised:
                score = to_logprob(score, top, log_total)
            score = score.to(tl.float64)
            score = tl.where(score < 0, score * repetition, score / repetition)
            score = score - share * part - frequency * output - tl.where(output > 0, presence, 0.0)
            allowed = _is_allowed(row_mask, token, is_token & has_mask)
            tl.store(scores + token, tl.where(allowed, score, -float("inf")).to(tl.float32), mask=is_token)


@triton.jit
def _num_left(scores, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    found = tl.full([], 0, tl.int32)
    for start in range(0, VOCABULARY, BLOCK):
        token = start + tl.arange(0, BLOCK)
        score = tl.load(scores + token, mask=token < VOCABULARY, other=-float("inf"))
        found += tl.sum((score != -float("inf")).to(tl.int32), axis=0)
    return found


@triton.jit
def _move_banned(source, target, ids, values, begin, end, added, IS_KEPT: tl.constexpr, VOCABULARY: tl.constexpr):
    """Copies scores of banned tokens, with something added, to the scores, or where the bans' own scores are kept."""
    for start in range(begin, end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        token = tl.load(ids + place, mask=place < end, other=-1)
        is_ban = tl.load(values + place, mask=place < end, other=0.0) == -float("inf")
        is_ban &= (token >= 0) & (token < VOCABULARY)
        score = tl.load(source + (token if IS_KEPT else place), mask=is_ban, other=0.0)
        tl.store(target + (place if IS_KEPT else token), score + added, mask=is_ban)
    tl.debug_barrier()


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=POINTERS)
def _bias(adjusted, left, unbanned, mask, bias_ids, bias_values, bias_offsets, num_biases, masks, num_masks,
          VOCABULARY: tl.constexpr, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, BLOCK: tl.constexpr):
    """Adds a row's biases, then those of -inf, which are bans: unless nothing would be left. Each bias adds all biases
    of its id in the chunk, so it does not matter which of them writes."""
    row = tl.program_id(0).to(tl.int64)
    begin, end = span(bias_offsets, row, num_biases)
    scores = adjusted + row * VOCABULARY
    row_mask, has_mask = mask_of(masks, tl.load(mask + row), num_masks, VOCABULARY)
    num_bans = tl.full([], 0, tl.int32)
    for start in range(begin, end, BIAS_CHUNK):
        place, other_place = start + tl.arange(0, BIAS_CHUNK), start + tl.arange(0, BIAS_CHUNK)[:, None]
        token = tl.load(bias_ids + place, mask=place < end, other=-1)
        other = tl.load(bias_ids + other_place, mask=other_place < end, other=-1)
        value = tl.load(bias_values + other_place, mask=other_place < end, other=0.0)
        is_soft = value > -float("inf")
        added = tl.sum(tl.where((other == token[None, :]) & is_soft, value, 0.0), axis=0)
        is_token = (token >= 0) & (token < VOCABULARY)
        score = tl.load(scores + token, mask=is_token, other=0.0) + added
        allowed = _is_allowed(row_mask, token, is_token & has_mask)
        num_bans += tl.sum(tl.sum(tl.where(is_soft, 0, 1), axis=1), axis=0)
        tl.debug_barrier()
        tl.store(scores + token, tl.where(allowed, score, -float("inf")), mask=is_token)
        tl.debug_barrier()
    if num_bans > 0:
        _move_banned(scores, unbanned, bias_ids, bias_values, begin, end, 0.0, True, VOCABULARY)
        _move_banned(unbanned, scores, bias_ids, bias_values, begin, end, -float("inf"), False, VOCABULARY)
        part = tl.arange(0, PARTS_BLOCK)
        num_left = tl.sum(tl.load(left + row * PARTS + part, mask=part < PARTS, other=0), axis=0)
        # Fewer bans than that leave something in any case, and the row need not be looked through.
        if num_left <= num_bans:
            num_left = _num_left(scores, VOCABULARY, BLOCK)
        if num_left == 0:
            _move_banned(unbanned, scores, bias_ids, bias_values, begin, end, 0.0, False, VOCABULARY)


class Scores:
    """Holds the rows' scores: of a row that is adjusted in `adjusted`, of the others in `logits`. Only the GPU knows
    which are which."""

    def __init__(
        self, logits: Tensor, parameters: SampleParameters, history: History, biases: Biases, masks: Tensor
    ) -> None:
        """Launches the kernels that adjust them."""
        (num_rows, vocabulary), p = logits.shape, parameters
        can_adjust = len(history.ids) + len(biases.ids) + len(masks) > 0
        self.logits = logits
        self.adjusted = torch.empty(logits.shape if can_adjust else 0, device=logits.device)
        self.is_adjusted = torch.empty(num_rows, dtype=torch.int32, device=logits.device)
        self.bounds = torch.empty(num_rows, 4, device=logits.device)
        """The bounds that cutoffs leave, as `is_kept` takes them: the lowest score, a middle that is the sum of two
        floats, and how far from there."""
        num_parts = triton.cdiv(vocabulary, PART) if can_adjust else 1
        left = torch.empty(num_rows, num_parts, dtype=torch.int32, device=logits.device)
        block = min(BLOCK, max(16, triton.next_power_of_2(vocabulary)))
        penalties = p.repetition_penalty, p.share_penalty, p.frequency_penalty, p.presence_penalty
        masks_of_rows = masks, len(masks)
        totals = find_totals(logits, p, can_adjust and "of_logprobs" in p.passes)
        before = *masks_of_rows, totals, len(totals)
        _copy[(num_rows, num_parts)](
            *self.tensors, left, *penalties, p.mask, history.offsets, len(history.ids),
            biases.offsets, len(biases.ids), *before, VOCABULARY=vocabulary, PART=PART, BLOCK=block,
            num_warps=max(1, block // 256))
        if len(history.ids):
            places, counts = torch.empty_like(history.ids), torch.empty_like(history.ids)
            for step in (MARK.value, COUNT.value, CHARGE.value):
                _penalise[(num_rows, SHARES)](
                    logits, self.adjusted, places, counts, p.prompt_length, *penalties, p.mask, history.ids,
                    history.offsets, len(history.ids), *before, STEP=step, VOCABULARY=vocabulary)
        if len(biases.ids):
            _bias[(num_rows,)](
                self.adjusted, left, torch.empty_like(biases.values), p.mask, biases.ids, biases.values, biases.offsets,
                len(biases.ids), *masks_of_rows, VOCABULARY=vocabulary, PARTS=num_parts,
                PARTS_BLOCK=triton.next_power_of_2(num_parts), BLOCK=block)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.logits, self.adjusted, self.is_adjusted, self.bounds


@triton.jit
def scores_of(logits, adjusted, is_adjusted, row, VOCABULARY: tl.constexpr):
    """Returns where a row's scores are."""
    scores = logits + row * VOCABULARY
    if tl.load(is_adjusted + row) != 0:
        scores = adjusted + row * VOCABULARY
    return scores
