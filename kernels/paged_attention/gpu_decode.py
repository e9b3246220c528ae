"""Attention of the sequences that have one query: over segments of the positions, whose softmaxes are then merged.

The number of programs is fixed, so that a graph may hold the launch; they share out the segments among themselves. The
query heads of a KV head are the rows of a tile, so K and V are read once (Flash-Decoding, Dao et al. 2023).
"""

import triton
import triton.language as tl

from penstock.kernels.paged_attention.gpu_tile import (
    OF_THE_STEP,
    merge_weights,
    segment_of,
    segment_start,
    slopes_of,
    sweep,
)


@triton.jit(do_not_specialize=[*OF_THE_STEP, "num_segments"])
def decode_segments(q, q_stride, stored, scales, tables, table_stride, starts, counts, num_sequences, partials, sums,
                    num_segments, factor, window, softcap, slopes, KIND: tl.constexpr, UNIT: tl.constexpr,
                    COMPUTE: tl.constexpr, NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr,
                    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, SEQUENCES: tl.constexpr, SEGMENT: tl.constexpr,
                    HEADS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
                    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_SLOPES: tl.constexpr,
                    ORDERED: tl.constexpr):
    """Writes to partials [S, num_segments, H, D] and sums [S, num_segments, H, 2], for the segments that a sequence
    sees, its values, its total and its top."""
    group: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    parts: tl.constexpr = (group + HEADS - 1) // HEADS  # of the heads of a KV head
    candidate = tl.arange(0, SEQUENCES)
    is_candidate = candidate < num_sequences
    count = tl.load(counts + candidate, mask=is_candidate, other=0)
    length = tl.load(starts + candidate, mask=is_candidate, other=0) + 1
    own = segment_of(length - 1, SEGMENT) + 1
    if HAS_WINDOW:
        own -= segment_of(tl.maximum(length - window, 0), SEGMENT)
    own = tl.where(count == 1, own, 0)
    ends = tl.cumsum(own, axis=0)
    m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    for item in range(tl.program_id(0), tl.sum(own) * NUM_KV_HEADS * parts, tl.num_programs(0)):
        # The last segments of a sequence may be the longest, and come first.
        index, part = tl.sum(own) - 1 - item // (NUM_KV_HEADS * parts), item % (NUM_KV_HEADS * parts)
        sequence = tl.sum((ends <= index).to(tl.int32))
        row = tl.sum(tl.where(candidate < sequence, count, 0))
        segment = index - tl.sum(tl.where(candidate < sequence, own, 0))
        high = tl.load(starts + sequence) + 1
        low = high * 0
        if HAS_WINDOW:
            low = tl.maximum(high - window, 0)
            segment += segment_of(low, SEGMENT)
        kv_head, in_group = part // parts, part % parts * HEADS + m
        head = kv_head * group + in_group
        is_head = (m < HEADS) & (in_group < group)
        tile_q = tl.load(q + row.to(tl.int64) * q_stride + head[:, None] * HEAD_DIM + d[None, :],
                         mask=is_head[:, None] & (d[None, :] < HEAD_DIM), other=0.0).to(COMPUTE)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        top = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M, 16] if ORDERED else [BLOCK_M], tl.float32)
        first = tl.maximum(segment_start(segment, SEGMENT), low // BLOCK_N * BLOCK_N)
        last = tl.minimum(segment_start(segment + 1, SEGMENT), high)
        acc, total, top = sweep(
            acc, total, top, tile_q, m * 0 + high - 1, slopes_of(slopes, head, is_head, HAS_SLOPES), stored, scales,
            tables + sequence.to(tl.int64) * table_stride, kv_head, first,
            last, low, high, factor, window, softcap, "keys", KIND, UNIT, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE,
            BLOCK_D, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, ORDERED)
        if ORDERED:
            total = tl.max(total, axis=1)
        place = (sequence.to(tl.int64) * num_segments + segment) * NUM_HEADS + head
        tl.store(partials + place[:, None] * HEAD_DIM + d[None, :], acc,
                 mask=is_head[:, None] & (d[None, :] < HEAD_DIM))
        tl.store(sums + place * 2, total, mask=is_head)
        tl.store(sums + place * 2 + 1, top, mask=is_head)


@triton.jit(do_not_specialize=["num_segments"])
def merge_segments(partials, sums, num_segments, starts, counts, sinks, out, window, SEQUENCES: tl.constexpr,
                   UNIT: tl.constexpr, NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SEGMENT: tl.constexpr,
                   BLOCK_D: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SINKS: tl.constexpr, AT_ONCE: tl.constexpr):
    """Writes out [T, H, D] of the sequences with one query: a program a head adds segments in ascending order."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    if tl.load(counts + sequence) == 1:
        before = tl.arange(0, SEQUENCES)
        row = tl.sum(tl.load(counts + before, mask=before < sequence, other=0))
        high = tl.load(starts + sequence) + 1
        low = high * 0
        if HAS_WINDOW:
            low = tl.maximum(high - window, 0)
        last = segment_of(high - 1, SEGMENT) + 1
        d = tl.arange(0, BLOCK_D)
        is_d = d < HEAD_DIM
        acc = tl.zeros([BLOCK_D], tl.float32)
        total, top = 0.0, float("-inf")
        for group in range(segment_of(low, SEGMENT), last, AT_ONCE):
            for more in tl.static_range(AT_ONCE):  # their loads go out together
                segment = group + more
                is_one = segment < last
                place = (sequence.to(tl.int64) * num_segments + segment) * NUM_HEADS + head
                own_acc = tl.load(partials + place * HEAD_DIM + d, mask=is_d & is_one, other=0.0)
                own_total = tl.load(sums + place * 2, mask=is_one, other=0.0)
                own_top = tl.load(sums + place * 2 + 1, mask=is_one, other=float("-inf"))
                top, decay, own_decay = merge_weights(top, own_top)
                total = total * decay + own_total * own_decay
                acc = acc * decay + own_acc * own_decay
        if HAS_SINKS:
            total += tl.exp2(tl.load(sinks + head) * 1.4426950408889634 - top)
        value = acc / (total * UNIT)
        tl.store(out + (row.to(tl.int64) * NUM_HEADS + head) * HEAD_DIM + d, value.to(out.dtype.element_ty), mask=is_d)
