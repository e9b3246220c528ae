"""Attention of the sequences that have several queries: tiles of them, the heads of a KV head packed into the rows."""

import triton
import triton.language as tl

from penstock.kernels.paged_attention.gpu_tile import (
    OF_THE_STEP,
    numbers_at,
    places_of,
    slopes_of,
    sweep_segments,
    take_tile,
    value_of,
    weights_of,
)


@triton.jit(do_not_specialize=OF_THE_STEP)
def prefill_tiles(q, q_stride, stored, scales, tables, table_stride, starts, counts, num_sequences, sinks, slopes,
                  out, factor, window, softcap, KIND: tl.constexpr, UNIT: tl.constexpr, COMPUTE: tl.constexpr,
                  NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
                  BLOCK_SIZE: tl.constexpr, SEQUENCES: tl.constexpr, SEGMENT: tl.constexpr, HEADS: tl.constexpr,
                  TOKENS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
                  HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_SINKS: tl.constexpr,
                  HAS_SLOPES: tl.constexpr, ORDERED: tl.constexpr):
    """Writes out [T, H, D] of the sequences with several queries: a program takes TOKENS of them and HEADS heads.

    ORDERED: with the softmaxes of segments of gpu_decode.py, merged in the same order, so that the bits are the same.
    """
    group: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    parts: tl.constexpr = (group + HEADS - 1) // HEADS
    candidate = tl.arange(0, SEQUENCES)
    counted = tl.load(counts + candidate, mask=candidate < num_sequences, other=0)
    own = tl.where(counted > 1, (counted + TOKENS - 1) // TOKENS, 0)
    ends = tl.cumsum(own, axis=0)
    index = tl.sum(own) - 1 - tl.program_id(1)  # late tiles see most, and come first
    if index >= 0:
        sequence = tl.sum((ends <= index).to(tl.int32))
        row = tl.sum(tl.where(candidate < sequence, counted, 0))
        tile_token = (index - tl.sum(tl.where(candidate < sequence, own, 0))) * TOKENS
        start, count = tl.load(starts + sequence), tl.load(counts + sequence)
        kv_head, part = tl.program_id(0) // parts, tl.program_id(0) % parts
        m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
        token, in_group = tile_token + m // HEADS, part * HEADS + m % HEADS
        is_row = (m < TOKENS * HEADS) & (token < count) & (in_group < group)
        is_value = is_row[:, None] & (d[None, :] < HEAD_DIM)
        head = kv_head * group + in_group
        row += token
        tile_q = tl.load(q + row.to(tl.int64)[:, None] * q_stride + head[:, None] * HEAD_DIM + d[None, :],
                         mask=is_value, other=0.0).to(COMPUTE)
        position = start + token
        slope = slopes_of(slopes, head, is_row, HAS_SLOPES)
        high = start + tl.minimum(tile_token + TOKENS, count)
        low = high * 0
        if HAS_WINDOW:
            low = tl.maximum(start + tile_token + 1 - window, 0)
        table = tables + sequence.to(tl.int64) * table_stride
        is_seen_by_all = (start + tile_token + 1) // BLOCK_N * BLOCK_N  # where there is no window
        target = out + row.to(tl.int64)[:, None] * NUM_HEADS * HEAD_DIM + head[:, None] * HEAD_DIM + d[None, :]
        value = _attended(
            tile_q, position, slope, stored, scales, table, kv_head, low, high, is_seen_by_all, factor, window,
            softcap, sinks, head, is_row, "rows", KIND, UNIT, COMPUTE, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE,
            SEGMENT, BLOCK_M, BLOCK_D, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SINKS, HAS_SLOPES, ORDERED)
        tl.store(target, value.to(out.dtype.element_ty), mask=is_value)
        if tl.max(tl.where(is_value & (tl.abs(value) < float("inf")), 0, is_value.to(tl.int32))) > 0:
            # An Inf or NaN may be of a key that only later queries see: each for itself, with no other keys.
            for one in range(tl.minimum(TOKENS, count - tile_token)):
                high = start + tile_token + one + 1
                if HAS_WINDOW:
                    low = tl.maximum(high - window, 0)
                value = _attended(
                    tile_q, position, slope, stored, scales, table, kv_head, low, high, low, factor, window, softcap,
                    sinks, head, is_row, "keys", KIND, UNIT, COMPUTE, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE,
                    SEGMENT, BLOCK_M, BLOCK_D, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SINKS, HAS_SLOPES, ORDERED)
                tl.store(target, value.to(out.dtype.element_ty), mask=is_value & (token == tile_token + one)[:, None])


@triton.jit
def _attended(q, position, slope, stored, scales, table, kv_head, low, high, is_seen_by_all, factor, window, softcap,
              sinks, head, is_row, MASK: tl.constexpr, KIND: tl.constexpr, UNIT: tl.constexpr, COMPUTE: tl.constexpr,
              NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
              SEGMENT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
              HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_SLOPES: tl.constexpr,
              ORDERED: tl.constexpr):
    """Returns the result [M, D], float32, of the rows q [M, D] for the keys from low to high, of which a row sees what
    MASK says (see `places_of`)."""
    first = low // BLOCK_N * BLOCK_N
    if ORDERED:
        acc, total, top = sweep_segments(
            q, position, slope, stored, scales, table, kv_head, first, high, low, high, factor, window, softcap, True,
            stored, scales, 0, 0, MASK, KIND, UNIT, COMPUTE, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE,
            SEGMENT, BLOCK_M, BLOCK_D, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, ORDERED)
    else:
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        top = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        if MASK == "rows":
            if not HAS_WINDOW:
                if first < is_seen_by_all:
                    acc, total, top = _sweep(
                        acc, total, top, q, position, slope, stored, scales, table, kv_head, first, is_seen_by_all, low,
                        high, factor, window, softcap, "none", KIND, UNIT, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE,
                        BLOCK_M, BLOCK_D, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES)
                first = is_seen_by_all
            if first < high:
                acc, total, top = _sweep(
                    acc, total, top, q, position, slope, stored, scales, table, kv_head, first, high, low, high, factor,
                    window, softcap, MASK, KIND, UNIT, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCK_M, BLOCK_D,
                    BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES)
        else:
            for tile in range(first, high, BLOCK_N):
                acc, total, top = take_tile(
                    acc, total, top, q, position, slope, stored, scales, table, kv_head, tile, low, high, factor,
                    window, softcap, MASK, KIND, UNIT, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCK_D, BLOCK_N,
                    HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, ORDERED)
    return value_of(acc, total, top, sinks, head, is_row, UNIT, HAS_SINKS)


@triton.jit
def _sweep(acc, total, top, q, row_position, slope, stored, scales, table, kv_head, first, last, low, high, factor,
           window, softcap, MASK: tl.constexpr, KIND: tl.constexpr, UNIT: tl.constexpr, COMPUTE: tl.constexpr,
           NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr,
           BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
           HAS_SLOPES: tl.constexpr):
    """Returns the online softmax (acc [M, D], total, top [M]) of the rows q [M, D] after tiles `first` to `last`.

    Hopper's matrix instructions add the values of a tile while the others make the weights of the next. For the
    compiler not to wait between, what is left of a tile is carried on as it is: its acc is multiplied, and its weights
    are rounded, as late as can be. The first tile has the weights 0 before it.
    """
    weight, decay = tl.zeros([BLOCK_M, BLOCK_N], tl.float32), tl.full([BLOCK_M], 1.0, tl.float32)
    for tile in range(first, last, BLOCK_N):
        block, position, is_key = places_of(table, tile, low, high, MASK, BLOCK_SIZE, BLOCK_N)
        v_block, v_position, is_value = places_of(
            table, tl.maximum(tile - BLOCK_N, first), low, high, MASK, BLOCK_SIZE, BLOCK_N)
        k = numbers_at(stored, block, position, is_key, kv_head, MASK, KIND, COMPUTE, NUM_KV_HEADS, HEAD_DIM,
                       BLOCK_SIZE, BLOCK_D)
        v = numbers_at(stored, v_block, v_position, is_value, NUM_KV_HEADS + kv_head, MASK, KIND, COMPUTE, NUM_KV_HEADS,
                       HEAD_DIM, BLOCK_SIZE, BLOCK_D)
        product = tl.dot(q, tl.trans(k), input_precision="ieee")
        acc = tl.dot(weight.to(COMPUTE), v, acc * decay[:, None], input_precision="ieee")
        weight, decay, total, top = weights_of(
            product, total, top, row_position, slope, scales, block, position, is_key, kv_head, factor, window, softcap,
            MASK, KIND, UNIT, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES,
            False)
    block, position, is_key = places_of(
        table, (last - 1) // BLOCK_N * BLOCK_N, low, high, MASK, BLOCK_SIZE, BLOCK_N)
    v = numbers_at(stored, block, position, is_key, NUM_KV_HEADS + kv_head, MASK, KIND, COMPUTE, NUM_KV_HEADS, HEAD_DIM,
                   BLOCK_SIZE, BLOCK_D)
    return tl.dot(weight.to(COMPUTE), v, acc * decay[:, None], input_precision="ieee"), total, top
