"""Takes one tile of keys and values, for the GPU's attention kernels of decode rows and of chunks alike.

Scores are in units of log 2, so that exp2 is all the softmax needs. Keys that a row does not see are an exact identity,
if they are finite."""

import triton
import triton.language as tl

OF_THE_STEP = ["table_stride", "num_sequences"]
"""Arguments that no kernel is made for: that would be compiled amid the serving. SEQUENCES is a power of two."""


@triton.jit
def segment_of(position, SEGMENT: tl.constexpr):
    """Returns the segment of a position, which has a softmax of its own. It follows from the position alone. The first
    32 have SEGMENT positions, the next 56 four times as many, later ones sixteen times: a sequence that is not long has
    enough for many programs, and a long one not too many to merge."""
    return tl.minimum(tl.minimum(position // SEGMENT, 24 + position // (4 * SEGMENT)), 72 + position // (16 * SEGMENT))


@triton.jit
def segment_start(segment, SEGMENT: tl.constexpr):
    """Returns the first position of a segment."""
    return tl.maximum(tl.maximum(segment, 4 * (segment - 24)), 16 * (segment - 72)) * SEGMENT


def count_segments(num_positions: int, segment: int) -> int:
    """Returns in how many segments the first positions lie."""
    last = num_positions - 1
    return 1 + min(last // segment, 24 + last // (4 * segment), 72 + last // (16 * segment))


@triton.jit
def widened(stored, KIND: tl.constexpr, COMPUTE: tl.constexpr):
    """Returns numbers of the cache in the type COMPUTE; those of 8 bits are exact, and yet to be scaled."""
    if KIND == "e4m3 of the GPU":
        value = stored.to(tl.float8e4nv, bitcast=True).to(COMPUTE)
    elif KIND == "e4m3":
        bits = stored.to(tl.uint16)
        half = ((bits & 0x80) << 8 | (bits & 0x7F) << 7).to(tl.float16, bitcast=True)  # 2⁻⁸ times the value
        value = tl.where((bits & 0x7F) == 0x7F, float("nan"), half.to(tl.float32) * 256.0).to(COMPUTE)
    elif KIND == "e5m2":
        value = (stored.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(COMPUTE)
    elif KIND == "int8":
        value = stored.to(tl.int8, bitcast=True).to(tl.float32).to(COMPUTE)
    else:
        value = stored.to(COMPUTE)
    return value


@triton.jit
def slopes_of(slopes, head, is_row, HAS_SLOPES: tl.constexpr):
    """Returns the slopes of rows in units of log 2: float32, as many as `head`."""
    if HAS_SLOPES:
        slope = tl.load(slopes + head, mask=is_row, other=0.0) * 1.4426950408889634
    else:
        slope = tl.zeros_like(head).to(tl.float32)
    return slope


@triton.jit
def take_tile(acc, total, top, q, row_position, slope, stored, scales, table, kv_head, tile, low, high, factor, window,
              softcap, MASK: tl.constexpr, KIND: tl.constexpr, UNIT: tl.constexpr, COMPUTE: tl.constexpr,
              NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_D: tl.constexpr,
              BLOCK_N: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_SLOPES: tl.constexpr,
              ORDERED: tl.constexpr):
    """Returns the online softmax (acc [M, D], total, top [M]) of the rows q [M, D] after the BLOCK_N keys at `tile`."""
    block, position, is_key = places_of(table, tile, low, high, MASK, BLOCK_SIZE, BLOCK_N)
    k = numbers_at(stored, block, position, is_key, kv_head, MASK, KIND, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE,
                   BLOCK_D)
    product = tl.dot(q, tl.trans(k), input_precision="ieee")
    weight, decay, total, top = weights_of(
        product, total, top, row_position, slope, scales, block, position, is_key, kv_head, factor, window, softcap,
        MASK, KIND, UNIT, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCK_N, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES,
        ORDERED)
    v = numbers_at(stored, block, position, is_key, NUM_KV_HEADS + kv_head, MASK, KIND, COMPUTE, NUM_KV_HEADS, HEAD_DIM,
                   BLOCK_SIZE, BLOCK_D)
    return tl.dot(weight.to(COMPUTE), v, acc * decay[:, None], input_precision="ieee"), total, top


@triton.jit
def places_of(table, tile, low, high, MASK: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Returns for each of the BLOCK_N keys at `tile` its block, its position in the sequence, and whether it is read.

    MASK  "none": all rows see all of these keys; "keys": all see those from low to high, and only these are read;
          "rows": each sees its own of them, and the others' V are multiplied by 0, which makes NaN of Inf and NaN
    """
    position = tile + tl.arange(0, BLOCK_N)
    is_key = (position >= low) & (position < high)
    if BLOCK_SIZE % BLOCK_N == 0:  # they all lie in one
        block = tl.load(table + tile // BLOCK_SIZE)
    elif MASK == "none":
        block = tl.load(table + position // BLOCK_SIZE)
    else:
        block = tl.load(table + position // BLOCK_SIZE, mask=is_key, other=0)
    return block.to(tl.int64), position, is_key


@triton.jit
def numbers_at(stored, block, position, is_key, matrix, MASK: tl.constexpr, KIND: tl.constexpr, COMPUTE: tl.constexpr,
               NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_D: tl.constexpr):
    """Returns K or V of keys, [N, D]: `matrix` counts the K of a block's heads, then their V."""
    block_stride: tl.constexpr = 2 * NUM_KV_HEADS * BLOCK_SIZE * (HEAD_DIM + 4 * (KIND != "float"))
    d = tl.arange(0, BLOCK_D)
    is_d = d[None, :] < HEAD_DIM
    row = block * block_stride + matrix * (BLOCK_SIZE * HEAD_DIM) + position % BLOCK_SIZE * HEAD_DIM
    number = tl.load(stored + row[:, None] + d[None, :], mask=is_d if MASK == "none" else is_key[:, None] & is_d,
                     other=0)
    return widened(number, KIND, COMPUTE)


@triton.jit
def weights_of(product, total, top, row_position, slope, scales, block, position, is_key, kv_head, factor, window,
               softcap, MASK: tl.constexpr, KIND: tl.constexpr, UNIT: tl.constexpr, COMPUTE: tl.constexpr,
               NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
               HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_SLOPES: tl.constexpr, ORDERED: tl.constexpr):
    """Returns the weights [M, N] of the values of a tile, whose q·k are `product`: float32, yet to be rounded. Then the
    factor [M] of what was summed up before it, and with it the softmax's total and top."""
    is_scaled: tl.constexpr = KIND != "float"
    score = product * factor
    if is_scaled:
        first: tl.constexpr = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM // 2
        stride: tl.constexpr = NUM_KV_HEADS * BLOCK_SIZE * (HEAD_DIM + 4) // 2
        scale = block * stride + first + kv_head * BLOCK_SIZE + position % BLOCK_SIZE
        if MASK == "none":
            k_scale = tl.load(scales + scale)
            v_scale = tl.load(scales + scale + NUM_KV_HEADS * BLOCK_SIZE)
        else:
            k_scale = tl.load(scales + scale, mask=is_key, other=0.0)
            v_scale = tl.load(scales + scale + NUM_KV_HEADS * BLOCK_SIZE, mask=is_key, other=0.0)
        score *= k_scale[None, :]
    if HAS_SOFTCAP:  # of the score in natural units; tanh from one exp2
        capped = 1.0 - 2.0 / (tl.exp2(score * (2.0 / softcap)) + 1.0)
        score = capped * (softcap * 1.4426950408889634)
    if HAS_SLOPES:
        score += slope[:, None] * (position[None, :] - row_position[:, None]).to(tl.float32)
    if MASK == "rows":
        is_seen = is_key[None, :] & (position[None, :] <= row_position[:, None])
        if HAS_WINDOW:
            is_seen &= position[None, :] > row_position[:, None] - window
        score = tl.where(is_seen, score, float("-inf"))
    elif MASK == "keys":
        score = tl.where(is_key[None, :], score, float("-inf"))

    new_top = tl.maximum(top, tl.max(score, axis=1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    weight = tl.exp2(score - base[:, None])
    decay = tl.exp2(top - base)
    if ORDERED:
        # A sum by the matrix instruction has one order in all layouts.
        total = tl.dot(weight.to(COMPUTE), tl.full([BLOCK_N, 16], 1.0, COMPUTE), total * decay[:, None],
                       input_precision="ieee")
    else:
        total = total * decay + tl.sum(weight, axis=1)
    if is_scaled:
        weight *= (v_scale * UNIT)[None, :]
    return weight, decay, total, new_top


@triton.jit
def sweep_segments(q, row_position, slope, stored, scales, table, kv_head, first, last, low, high, factor, window,
                   softcap, is_merged, partials, sums, place, num_rows, MASK: tl.constexpr, KIND: tl.constexpr,
                   UNIT: tl.constexpr, COMPUTE: tl.constexpr, NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr,
                   HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, SEGMENT: tl.constexpr, BLOCK_M: tl.constexpr,
                   BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
                   HAS_SLOPES: tl.constexpr, ORDERED: tl.constexpr):
    """Takes the tiles from `first` to `last`, each segment's with a softmax of its own, in one loop, so that the loads
    of a segment are on their way before the one ahead of it ends.

    Returns the softmaxes merged in ascending order (acc [M, D], total [M], top [M]) if `is_merged`; if not, stores
    each one's first `num_rows` rows, at place + NUM_HEADS * segment.
    """
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_M, 16] if ORDERED else [BLOCK_M], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    all_acc, all_total, all_top = acc, tl.zeros([BLOCK_M], tl.float32), top
    for tile in range(first, last, BLOCK_N):
        acc, total, top = take_tile(
            acc, total, top, q, row_position, slope, stored, scales, table, kv_head, tile, low, high, factor, window,
            softcap, MASK, KIND, UNIT, COMPUTE, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCK_D, BLOCK_N, HAS_WINDOW,
            HAS_SOFTCAP, HAS_SLOPES, ORDERED)
        segment, following = segment_of(tile, SEGMENT), tile + BLOCK_N
        if (segment_of(following, SEGMENT) > segment) | (following >= last):
            own = tl.max(total, axis=1) if ORDERED else total
            if is_merged:
                all_acc, all_total, all_top = merged(all_acc, all_total, all_top, acc, own, top)
            else:
                store_softmax(partials, sums, place + segment * NUM_HEADS, num_rows, acc, own, top, HEAD_DIM, BLOCK_M,
                              BLOCK_D)
            acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
            total = tl.zeros([BLOCK_M, 16] if ORDERED else [BLOCK_M], tl.float32)
            top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    return all_acc, all_total, all_top


@triton.jit
def store_softmax(partials, sums, place, num_rows, acc, total, top, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
                  BLOCK_D: tl.constexpr):
    """Stores the first rows' softmaxes (acc [M, D], total [M], top [M]) at `place`, one after the other."""
    m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    tl.store(sums + place * 2 + m * 2, total, mask=m < num_rows)
    tl.store(sums + place * 2 + (m * 2 + 1), top, mask=m < num_rows)
    # Half of them at a time, which pass through half as much shared memory.
    half: tl.constexpr = BLOCK_M // 2
    low, high = tl.split(tl.permute(tl.reshape(acc, [2, half, BLOCK_D]), [1, 2, 0]))
    row, is_d = tl.arange(0, half)[:, None], d[None, :] < HEAD_DIM
    target = partials + place * HEAD_DIM + (row * HEAD_DIM + d[None, :])
    tl.store(target, low, mask=(row < num_rows) & is_d)
    tl.store(target + half * HEAD_DIM, high, mask=(row + half < num_rows) & is_d)


@triton.jit
def merged(acc, total, top, later_acc, later_total, later_top):
    """Returns two softmaxes, of rows [M], as one. An empty one changes nothing."""
    new_top = tl.maximum(top, later_top)
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    decay, later_decay = tl.exp2(top - base), tl.exp2(later_top - base)
    acc = acc * decay[:, None] + later_acc * later_decay[:, None]
    return acc, total * decay + later_total * later_decay, new_top


@triton.jit
def value_of(acc, total, top, sinks, head, is_row, UNIT: tl.constexpr, HAS_SINKS: tl.constexpr):
    """Returns the result of a softmax, with the sinks of its rows' heads in the denominator: float32 [M, D]."""
    if HAS_SINKS:
        total += tl.exp2(tl.load(sinks + head, mask=is_row, other=0.0) * 1.4426950408889634 - top)
    return acc / (total * UNIT)[:, None]
