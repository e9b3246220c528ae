"""Adjusts a row's scores before anything else, in Triton: penalties on what its history holds, biases, and a
mask. One program writes a row; only the mask touches all of it, the rest goes to the ids of history and biases."""

import triton
import triton.language as tl

CHUNK = tl.constexpr(1024)  # ids of a history, at a time
BIAS_CHUNK = tl.constexpr(64)  # biases, each compared with all others of the chunk
WORD = tl.constexpr(32)  # tokens


@triton.jit
def is_allowed(mask, token, has_mask):
    """Tells whether the mask has the bits of tokens; every token is allowed where there is no mask."""
    word = tl.load(mask + token // WORD, mask=has_mask, other=-1)
    return (word >> (token % WORD).to(tl.int32)) & 1 == 1


@triton.jit
def _copy(logits, scores, mask, has_mask, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(0, VOCABULARY, BLOCK):
        token = start + tl.arange(0, BLOCK)
        is_token = token < VOCABULARY
        score = tl.load(logits + token, mask=is_token)
        allowed = is_allowed(mask, token, is_token & has_mask)
        tl.store(scores + token, tl.where(allowed, score, -float("inf")), mask=is_token)


@triton.jit
def _penalise(logits, scores, mask, has_mask, ids, places, counts, begin, end, prompt_length, repetition, share,
              frequency, presence, VOCABULARY: tl.constexpr):
    """Each occurrence of an id writes its place in the history where the id's score is to be. One of them stays, no
    matter which, and there the id is counted: all of it in the lower half of a count, the output in the upper half."""
    marks = scores.to(tl.pointer_type(tl.int32))
    for start in range(begin, end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        token = tl.load(ids + place, mask=place < end, other=-1)
        is_token = (token >= 0) & (token < VOCABULARY)
        tl.store(marks + token, (place - begin).to(tl.int32), mask=is_token)
        tl.store(counts + place, tl.zeros([CHUNK], tl.int64), mask=place < end)
    tl.debug_barrier()
    for start in range(begin, end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        token = tl.load(ids + place, mask=place < end, other=-1)
        is_token = (token >= 0) & (token < VOCABULARY)
        first = begin + tl.load(marks + token, mask=is_token, other=0).to(tl.int64)
        is_output = place - begin >= prompt_length
        tl.atomic_add(counts + first, tl.where(is_output, 0x100000001, 1).to(tl.int64), mask=is_token)
        tl.store(places + place, first, mask=is_token)
    tl.debug_barrier()
    for start in range(begin, end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        token = tl.load(ids + place, mask=place < end, other=-1)
        is_token = (token >= 0) & (token < VOCABULARY)
        first = tl.load(places + place, mask=is_token, other=0)
        count = tl.load(counts + first, mask=is_token, other=1)
        part = (count & 0xFFFFFFFF).to(tl.float64) / (end - begin).to(tl.float64)
        output = (count >> 32).to(tl.float64)
        score = tl.load(logits + token, mask=is_token, other=0.0).to(tl.float64)
        score = tl.where(score < 0, score * repetition, score / repetition)
        score = score - share * part - frequency * output - tl.where(output > 0, presence, 0.0)
        allowed = is_allowed(mask, token, is_token & has_mask)
        tl.store(scores + token, tl.where(allowed, score, -float("inf")).to(tl.float32), mask=is_token)
    tl.debug_barrier()


@triton.jit
def _add_biases(scores, mask, has_mask, ids, values, begin, end, with_bans, VOCABULARY: tl.constexpr):
    """Each bias adds all biases of its id in the chunk, so it does not matter which of them writes."""
    lane = tl.arange(0, BIAS_CHUNK)
    for start in range(begin, end, BIAS_CHUNK):
        token = tl.load(ids + start + lane, mask=start + lane < end, other=-1)
        other = tl.load(ids + start + lane[:, None], mask=start + lane[:, None] < end, other=-1)
        value = tl.load(values + start + lane[:, None], mask=start + lane[:, None] < end, other=0.0)
        is_counted = (other == token[None, :]) & (with_bans | (value > -float("inf")))
        added = tl.sum(tl.where(is_counted, value, 0.0), axis=0)
        is_token = (token >= 0) & (token < VOCABULARY)
        score = tl.load(scores + token, mask=is_token, other=0.0) + added
        allowed = is_allowed(mask, token, is_token & has_mask)
        tl.debug_barrier()
        tl.store(scores + token, tl.where(allowed, score, -float("inf")), mask=is_token)
        tl.debug_barrier()


@triton.jit
def has_bans(values, begin, end):
    found = tl.full([], 0, tl.int32)
    for start in range(begin, end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        value = tl.load(values + place, mask=place < end, other=0.0)
        found += tl.sum((value == -float("inf")).to(tl.int32), axis=0)
    return found > 0


@triton.jit
def adjust(logits, scores, mask, has_mask, history_ids, places, counts, begin, end, prompt_length, repetition, share,
           frequency, presence, bias_ids, bias_values, bias_begin, bias_end, with_bans,
           VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    """Writes a row's logits after all of it to `scores`. Bans are biases of -inf. begin = end where nothing is
    penalised."""
    _copy(logits, scores, mask, has_mask, VOCABULARY, BLOCK)
    tl.debug_barrier()
    if begin < end:
        _penalise(logits, scores, mask, has_mask, history_ids, places, counts, begin, end, prompt_length, repetition,
                  share, frequency, presence, VOCABULARY)
    _add_biases(scores, mask, has_mask, bias_ids, bias_values, bias_begin, bias_end, with_bans, VOCABULARY)
