"""Attention of the sequences that have one query: over segments of the positions, whose softmaxes are then merged.

The number of programs is fixed, so that a graph may hold the launch. The tiles of all sequences and KV heads lie end to
end, and each program takes an equal share, rounded to whole segments: runs of them, of one sequence after the other. It
finds them itself, from the lengths, for which it waits no longer than for a list that the host made; and such a list
would be another for each window, each number of programs and each way to cut the heads.

Who takes a sequence's first segments merges them as it goes. If these are not all, it stores what it has, the others
store each segment, and who stores last merges. So the order of sums is that of the segments, whoever takes them. The
query heads of a KV head are the rows of a tile, so K and V are read once (Flash-Decoding, Dao et al. 2023).
"""

import triton
import triton.language as tl

from penstock.kernels.paged_attention.gpu_tile import (
    OF_THE_STEP,
    merged,
    segment_of,
    segment_start,
    slopes_of,
    store_softmax,
    sweep_segments,
    value_of,
)

RUN_COST = tl.constexpr(2)
"""Tiles that could be taken, it is thought, in the time that it takes to begin with a sequence."""


@triton.jit(do_not_specialize=[*OF_THE_STEP, "num_segments"])
def decode_segments(q, q_stride, stored, scales, tables, table_stride, starts, counts, num_sequences, sinks, slopes,
                    out, partials, sums, counters, num_segments, factor, window, softcap, KIND: tl.constexpr,
                    UNIT: tl.constexpr, COMPUTE: tl.constexpr, NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr,
                    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, SEQUENCES: tl.constexpr, SEGMENT: tl.constexpr,
                    HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
                    BLOCK_N: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_SINKS: tl.constexpr,
                    HAS_SLOPES: tl.constexpr, ORDERED: tl.constexpr):
    """Writes out [T, H, D] of the sequences with one query.

    partials  [S, num_segments, H, D]  the values of segments on their way between programs
    sums      [S, num_segments, H, 2]  their totals and tops
    counters  [S, parts of the heads]  zeros, which it leaves behind: how many segments were stored
    """
    group: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    parts_of_group: tl.constexpr = (group + HEADS - 1) // HEADS
    parts: tl.constexpr = NUM_KV_HEADS * parts_of_group
    candidate = tl.arange(0, SEQUENCES)
    is_candidate = candidate < num_sequences
    count = tl.load(counts + candidate, mask=is_candidate, other=0)
    length = tl.load(starts + candidate, mask=is_candidate, other=0) + 1
    own = (length + BLOCK_N - 1) // BLOCK_N + RUN_COST
    if HAS_WINDOW:
        own -= tl.maximum(length - window, 0) // BLOCK_N
    own = tl.where(count == 1, own, 0)
    ends = tl.cumsum(own, axis=0)
    num_tiles = tl.sum(own) * parts
    share = (num_tiles + tl.num_programs(0) - 1) // tl.num_programs(0)
    place = tl.program_id(0) * share
    until = tl.minimum(place + share, num_tiles)
    while place < until:
        sequence = tl.sum((ends * parts <= place).to(tl.int32))
        row = tl.sum(tl.where(candidate < sequence, count, 0))
        before = tl.sum(tl.where(candidate < sequence, own, 0)) * parts
        high = tl.load(starts + sequence) + 1
        low = high * 0
        if HAS_WINDOW:
            low = tl.maximum(high - window, 0)
        low_tile = low // BLOCK_N
        num_own = (high + BLOCK_N - 1) // BLOCK_N - low_tile + RUN_COST
        part = (place - before) // num_own
        before += part * num_own  # the first tile of the sequence and the part is at this place
        first, end = segment_of(low, SEGMENT), segment_of(high - 1, SEGMENT) + 1
        begin = first
        if place > before:
            begin = segment_from(low_tile + place - before, SEGMENT, BLOCK_N)
        stop = tl.minimum(segment_from(low_tile + until - before, SEGMENT, BLOCK_N), end)
        if begin < stop:
            # Who takes the first segment takes those that begin in its share.
            share_end = (before // share + 1) * share
            first_stop = tl.minimum(segment_from(low_tile + share_end - before, SEGMENT, BLOCK_N), end)
            _attend(
                q + row.to(tl.int64) * q_stride, stored, scales, tables + sequence.to(tl.int64) * table_stride,
                sinks, slopes, out + row.to(tl.int64) * NUM_HEADS * HEAD_DIM, partials, sums,
                counters + sequence * parts + part, sequence.to(tl.int64) * num_segments, part // parts_of_group,
                part % parts_of_group * HEADS, first, begin, stop, first_stop, end, low, high, factor, window, softcap,
                KIND, UNIT, COMPUTE, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, SEGMENT, HEADS, ROWS, BLOCK_M,
                BLOCK_D, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SINKS, HAS_SLOPES, ORDERED)
        place = before + num_own


@triton.jit
def segment_from(tile, SEGMENT: tl.constexpr, BLOCK_N: tl.constexpr):
    """Returns the first segment that begins at a tile, which is not 0, or behind it."""
    return segment_of(tile * BLOCK_N - 1, SEGMENT) + 1


@triton.jit
def _attend(q, stored, scales, table, sinks, slopes, out, partials, sums, counter, scratch, kv_head, first_head, first,
            begin, stop, first_stop, end, low, high, factor, window, softcap, KIND: tl.constexpr, UNIT: tl.constexpr,
            COMPUTE: tl.constexpr, NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
            BLOCK_SIZE: tl.constexpr, SEGMENT: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr,
            BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, HAS_WINDOW: tl.constexpr,
            HAS_SOFTCAP: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_SLOPES: tl.constexpr, ORDERED: tl.constexpr):
    """Takes the segments from `begin` to `stop` of a query, which sees those from `first` to `end`; others take the
    rest, of which those before `first_stop` come as one. Whoever is last writes the result."""
    group: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    num_rows = tl.minimum(group - first_head, HEADS)
    first_head += kv_head * group
    tile_q = tl.load(q + first_head * HEAD_DIM + (m[:, None] * HEAD_DIM + d[None, :]),
                     mask=(m < num_rows)[:, None] & (d[None, :] < HEAD_DIM), other=0.0).to(COMPUTE)
    slope = slopes_of(slopes, first_head + m, m < num_rows, HAS_SLOPES)
    scratch = scratch * NUM_HEADS + first_head
    is_first = begin == first
    acc, total, top = sweep_segments(
        tile_q, m * 0 + high - 1, slope, stored, scales, table, kv_head,
        tl.maximum(segment_start(begin, SEGMENT), low // BLOCK_N * BLOCK_N),
        tl.minimum(segment_start(stop, SEGMENT), high), low, high, factor, window, softcap, is_first, partials, sums,
        scratch, num_rows, "keys", KIND, UNIT, COMPUTE, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, SEGMENT, BLOCK_M,
        BLOCK_D, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, ORDERED)
    if is_first & (stop == end):
        _write(out, acc, total, top, sinks, first_head, num_rows, UNIT, HEAD_DIM, BLOCK_M, BLOCK_D, HAS_SINKS)
    else:
        if is_first:
            store_softmax(partials, sums, scratch + first * NUM_HEADS, num_rows, acc, total, top, HEAD_DIM, BLOCK_M,
                          BLOCK_D)
        tl.debug_barrier()  # what all threads stored is there before one of them says so
        others = tl.atomic_add(counter, stop - begin, sem="acq_rel")
        if others + stop - begin == end - first:
            tl.store(counter, 0)
            all_acc, all_total, all_top = _merge(partials, sums, scratch, num_rows, first, first_stop, end, NUM_HEADS,
                                                 HEAD_DIM, ROWS, BLOCK_D)
            _write(out, all_acc, all_total, all_top, sinks, first_head, num_rows, UNIT, HEAD_DIM, ROWS, BLOCK_D,
                   HAS_SINKS)


@triton.jit
def _merge(partials, sums, place, num_rows, first, first_stop, end, NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
           ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """Returns the stored softmaxes as one (acc [ROWS, D], total, top [ROWS]): that of the segments from `first` to
    `first_stop`, and in ascending order those of the others."""
    acc, total, top = _load_softmax(partials, sums, place + first * NUM_HEADS, num_rows, HEAD_DIM, ROWS, BLOCK_D)
    at_once: tl.constexpr = max(1, min(16, 8192 // (ROWS * BLOCK_D)))
    for segment in range(first_stop, end, at_once):
        for more in tl.static_range(at_once):  # their loads go out together
            own_acc, own_total, own_top = _load_softmax(
                partials, sums, place + (segment + more) * NUM_HEADS, tl.where(segment + more < end, num_rows, 0),
                HEAD_DIM, ROWS, BLOCK_D)
            acc, total, top = merged(acc, total, top, own_acc, own_total, own_top)
    return acc, total, top


@triton.jit
def _load_softmax(partials, sums, place, num_rows, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """Returns the softmax that `store_softmax` stored in this program or another, from the cache that all processors
    share. No rows are an empty softmax."""
    m, d = tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    acc = tl.load(partials + place * HEAD_DIM + (m[:, None] * HEAD_DIM + d[None, :]),
                  mask=(m < num_rows)[:, None] & (d[None, :] < HEAD_DIM), other=0.0, cache_modifier=".cg")
    total = tl.load(sums + place * 2 + m * 2, mask=m < num_rows, other=0.0, cache_modifier=".cg")
    top = tl.load(sums + place * 2 + (m * 2 + 1), mask=m < num_rows, other=float("-inf"), cache_modifier=".cg")
    return acc, total, top


@triton.jit
def _write(out, acc, total, top, sinks, first_head, num_rows, UNIT: tl.constexpr, HEAD_DIM: tl.constexpr,
           ROWS: tl.constexpr, BLOCK_D: tl.constexpr, HAS_SINKS: tl.constexpr):
    """Writes the results of a query's heads from `first_head` on."""
    m, d = tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    value = value_of(acc, total, top, sinks, first_head + m, m < num_rows, UNIT, HAS_SINKS)
    tl.store(out + first_head * HEAD_DIM + (m[:, None] * HEAD_DIM + d[None, :]), value.to(out.dtype.element_ty),
             mask=(m < num_rows)[:, None] & (d[None, :] < HEAD_DIM))
