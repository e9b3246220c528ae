"""Multiplies x [M, K] by the transposed weight [N, K] in Triton; M does not change the order of a sum over k.

Within a segment the products are added in float32 by one matrix instruction after the other, ascending in k: on Hopper
always wgmma, whose tiles have 64 rows, so few rows are padded to 64; elsewhere always mma.sync. How large the tiles
are, and which program adds which segments, is a matter of speed alone. A program adds whole subtrees of the segments'
tree; where there are too few tiles for a GPU's processors, several programs share a tile's segments (split-K), and a
second kernel adds what they have.

One loop goes through all steps along k, of all segments, and of all tiles where a program has several (a persistent
kernel): its loads run ahead of its products across segments and tiles, so they follow from the step's number alone.
"""

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels import early_start, tuning
from penstock.kernels.early_start import SECTOR, prefetch, release, wait
from penstock.kernels.linear.choices import NUM_PROCESSORS, Shape, choices, num_processors
from penstock.kernels.tuning import Config

GROUP = 8                    # tiles of rows that go through the weight together, so that it comes from the L2 cache
PREFETCHED = tl.constexpr(512)  # bytes of each row of a weight's tile that are fetched before the input is there


@triton.jit
def _place(tile, num_rows, num_columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Returns which part of the segments a tile is of, its rows [BLOCK_M, 1] and its columns [1, BLOCK_N]."""
    row_tiles, column_tiles = tl.cdiv(num_rows, BLOCK_M), tl.cdiv(num_columns, BLOCK_N)
    within = tile % (row_tiles * column_tiles)
    first = within // (GROUP * column_tiles) * GROUP
    group = min(row_tiles - first, GROUP)
    within = within % (GROUP * column_tiles)
    row = (first + within % group) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    column = within // group * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    return tile // (row_tiles * column_tiles), row, column


@triton.jit
def _fold(total, low, middle, high, segment, SEGMENTS: tl.constexpr):
    """Adds a segment's sum to those that the tree has on its left. Returns the sum that goes on, 0 where it waits for
    its right: then one of the others, each of a level, holds it."""
    # 0 is added to what is kept, since a product's own register would have to be waited for in every step.
    if segment % 2 == 0:
        low = total + 0.0
        total = tl.zeros_like(total)
    else:
        total = low + total
        if SEGMENTS > 2:
            if segment % 4 == 1:
                middle = total + 0.0
                total = tl.zeros_like(total)
            else:
                total = middle + total
                if SEGMENTS > 4:
                    if segment % 8 == 3:
                        high = total + 0.0
                        total = tl.zeros_like(total)
                    else:
                        total = high + total
    return total, low, middle, high


@triton.jit
def _write(total, bias, out, tile, num_rows, num_columns, HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr,
           BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    part, row, column = _place(tile, num_rows, num_columns, BLOCK_M, BLOCK_N, GROUP)
    is_column = column < num_columns
    result = total + 0.0
    if HAS_BIAS:
        result += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)
    place = (part * num_rows + row).to(tl.int64) * num_columns + column
    tl.store(out + place, result.to(out.dtype.element_ty), mask=(row < num_rows) & is_column)


@triton.jit
def _prefetch_weight(weight, tile, num_rows, num_columns, num_inputs, depth, BLOCK_M: tl.constexpr,
                     BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    part, _, column = _place(tile, num_rows, num_columns, BLOCK_M, BLOCK_N, GROUP)
    sector: tl.constexpr = SECTOR * 8 // weight.dtype.element_ty.primitive_bitwidth
    k = tl.arange(0, PREFETCHED // SECTOR)[:, None] * sector
    row = tl.minimum(column, num_columns - 1).to(tl.int64)
    prefetch(weight + row * num_inputs + part * depth + k)


@triton.jit
def _load(x, weight, tile, depth, steps, num_rows, num_columns, num_inputs, width, IS_EVEN: tl.constexpr,
          SEGMENTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
          GROUP: tl.constexpr):
    """Returns the operands of a tile in step `depth`, of `steps` of each segment."""
    k = tl.arange(0, BLOCK_K)
    part, row, column = _place(tile, num_rows, num_columns, BLOCK_M, BLOCK_N, GROUP)
    is_x, is_weight = row < num_rows, column < num_columns
    begin = part * SEGMENTS * width + depth * BLOCK_K
    if not IS_EVEN:
        within = depth % steps * BLOCK_K
        begin = (part * SEGMENTS + depth // steps) * width + within
        is_k = within + k < width
        is_x, is_weight = is_x & is_k[None, :], is_weight & is_k[:, None]
    left = tl.load(x + begin + (row.to(tl.int64) * num_inputs + k[None, :]), mask=is_x, other=0.0)
    right = tl.load(weight + begin + (column.to(tl.int64) * num_inputs + k[:, None]), mask=is_weight, other=0.0)
    if left.dtype != right.dtype:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return left, right


@triton.jit(do_not_specialize=["num_rows", "num_tiles"])
def _matmul(x, weight, bias, out, num_rows, num_columns, num_inputs, width, num_tiles, HAS_BIAS: tl.constexpr,
            IS_EVEN: tl.constexpr, PREFETCHES: tl.constexpr, IS_EARLY: tl.constexpr, SEGMENTS: tl.constexpr,
            IS_PERSISTENT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
            GROUP: tl.constexpr):
    first, programs = tl.program_id(0), tl.num_programs(0)
    if PREFETCHES:
        _prefetch_weight(weight, first, num_rows, num_columns, num_inputs, SEGMENTS * width, BLOCK_M, BLOCK_N, GROUP)
    wait(IS_EARLY)
    steps = tl.maximum(tl.cdiv(width, BLOCK_K), 1)  # of a segment
    num_steps = SEGMENTS * steps
    if IS_PERSISTENT:
        num_steps *= tl.cdiv(num_tiles - first, programs)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    low, middle, high = total, total, total
    tile, segment, done = first, 0, 0
    for step in range(num_steps):
        loaded, depth = first, step
        if IS_PERSISTENT:
            loaded, depth = first + step // (SEGMENTS * steps) * programs, step % (SEGMENTS * steps)
        left, right = _load(x, weight, loaded, depth, steps, num_rows, num_columns, num_inputs, width, IS_EVEN,
                            SEGMENTS, BLOCK_M, BLOCK_N, BLOCK_K, GROUP)
        total = tl.dot(left, right, total, input_precision="ieee")
        if SEGMENTS > 1 or IS_PERSISTENT:
            done += 1
            if done == steps:
                done = 0
                if SEGMENTS > 1:
                    total, low, middle, high = _fold(total, low, middle, high, segment, SEGMENTS)
                    segment += 1
                    if IS_PERSISTENT:
                        is_whole = segment == SEGMENTS
                        if is_whole:
                            _write(total, bias, out, tile, num_rows, num_columns, HAS_BIAS, BLOCK_M, BLOCK_N, GROUP)
                            total, tile, segment = tl.zeros_like(total), tile + programs, 0
                else:
                    _write(total, bias, out, tile, num_rows, num_columns, HAS_BIAS, BLOCK_M, BLOCK_N, GROUP)
                    total, tile = tl.zeros_like(total), tile + programs
    release(IS_EARLY)
    if not IS_PERSISTENT:
        _write(total, bias, out, first, num_rows, num_columns, HAS_BIAS, BLOCK_M, BLOCK_N, GROUP)


@triton.jit
def _tree(sums, place, is_place, size, PARTS: tl.constexpr):
    if PARTS == 1:
        total = tl.load(sums + place, mask=is_place, other=0.0)
    else:
        HALF: tl.constexpr = PARTS // 2
        total = _tree(sums, place, is_place, size, HALF) + _tree(sums + HALF * size, place, is_place, size, HALF)
    return total


@triton.jit(do_not_specialize=["num_rows"])
def _add_parts(sums, bias, out, num_rows, num_columns, PARTS: tl.constexpr, HAS_BIAS: tl.constexpr,
               BLOCK: tl.constexpr, IS_EARLY: tl.constexpr):
    """Writes to out [M, N] the tree over sums [PARTS, M, N], and the bias."""
    size = num_rows.to(tl.int64) * num_columns
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_place = place < size
    wait(IS_EARLY)
    total = _tree(sums, place, is_place, size, PARTS)
    release(IS_EARLY)
    if HAS_BIAS:
        total += tl.load(bias + place % num_columns, mask=is_place, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=is_place)


def matmul(x: Tensor, weight: Tensor, segments: int, bias: Tensor | None, out_dtype: torch.dtype,
           config: Config | None = None) -> Tensor:
    """Multiplies x [M, K] by weight [N, K]: [M, N], rounded once.

    `config` is one of `choices`, none of which changes a bit; without it the saved one is used, or else the first.
    """
    shape = shape_of(x, weight, segments, out_dtype)
    out = torch.empty(len(x), shape.columns, dtype=out_dtype, device=x.device)
    if not out.numel():
        return out
    config = config or _config(shape)
    parts, early = segments // config["SEGMENTS"], early_start.options()
    if parts == 1:
        _launch(x, weight, segments, bias, out, config, early)
        return out
    sums = torch.empty(parts, *out.shape, dtype=torch.float32, device=x.device)
    _launch(x, weight, segments, None, sums, config, early)
    block = 1024 if out.numel() > 1024 * NUM_PROCESSORS else 256
    _add_parts[(triton.cdiv(out.numel(), block),)](
        sums, bias, out, *out.shape, PARTS=parts, HAS_BIAS=bias is not None, BLOCK=block, **early)
    return out


def _launch(x: Tensor, weight: Tensor, segments: int, bias: Tensor | None, out: Tensor, config: Config,
            early: dict[str, Any]) -> None:
    """Writes the sums of each part of the segments to `out`, one below the other."""
    (num_rows, num_inputs), num_columns = x.shape, len(weight)
    width, block_k = num_inputs // segments, _block_k(x.dtype, weight.dtype)
    parts, is_persistent = segments // config["SEGMENTS"], config["IS_PERSISTENT"]
    num_tiles = parts * triton.cdiv(num_rows, config["BLOCK_M"]) * triton.cdiv(num_columns, config["BLOCK_N"])
    num_programs = min(num_tiles, num_processors(x.device)) if is_persistent else num_tiles
    is_long = config["SEGMENTS"] * width * weight.itemsize >= PREFETCHED.value
    _matmul[(num_programs,)](
        x, weight, bias, out, num_rows, num_columns, num_inputs, width, num_tiles, HAS_BIAS=bias is not None,
        IS_EVEN=width > 0 and width % block_k == 0, PREFETCHES=early["IS_EARLY"] and is_long and not is_persistent,
        BLOCK_K=block_k, GROUP=GROUP, **config, **early)


def tune(x: Tensor, weight: Tensor, segments: int, out_dtype: torch.dtype) -> tuning.Outcome:
    """Finds and saves the fastest configuration for these shapes, and for all M up to the next power of two."""
    shape = shape_of(x, weight, segments, out_dtype)
    _config.cache_clear()
    return tuning.tune("linear", shape.key(), choices(shape),
                       lambda config: matmul(x, weight, segments, None, out_dtype, config))


def shape_of(x: Tensor, weight: Tensor, segments: int, out_dtype: torch.dtype) -> Shape:
    return _shape(len(x), len(weight), x.shape[1], segments, x.dtype, weight.dtype, out_dtype, tuning.capability())


@functools.cache
def _shape(rows: int, columns: int, inputs: int, segments: int, x_dtype: torch.dtype, weight_dtype: torch.dtype,
           out_dtype: torch.dtype, capability: int) -> Shape:
    rows = min(max(triton.next_power_of_2(rows), 16), 4096)
    is_exact, is_wide = _block_k(x_dtype, weight_dtype) == 32, out_dtype == torch.float32
    return Shape(rows, columns, inputs, segments, is_exact, is_wide, capability)


def _block_k(*dtypes: torch.dtype) -> int:
    """Returns a tile's length along k, the same for all M. 16-bit numbers of two kinds are multiplied as float32, which
    has no matrix instruction."""
    return 64 if dtypes in ((torch.bfloat16,) * 2, (torch.float16,) * 2) else 32


@functools.cache
def _config(shape: Shape) -> Config:
    return tuning.best("linear", shape.key(), choices(shape))
