"""Multiplies x [M, K] by the transposed weight [N, K] in Triton; M does not change the order of a sum over k.

Within a segment the products are added in float32 by one matrix instruction after the other, ascending in k: on Hopper
always wgmma, whose tiles have 64 rows, so few rows are padded to 64; elsewhere always mma.sync. How large the tiles
are, and which program adds which segments, is a matter of speed alone. A program adds whole subtrees of the segments'
tree; where there are too few tiles for a GPU's processors, several programs share a tile's segments (split-K), and a
second kernel adds what they have.
"""

import functools
import itertools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels import tuning
from penstock.kernels.tuning import Config

NUM_PROCESSORS = 128         # about a GPU's; it takes no exact number to guess
MAX_ACCUMULATORS = 96        # registers of a thread, of 255, with mma.sync; more and they spill
MAX_WGMMA_ACCUMULATORS = 128  # whose operands take none; with few threads they take some, for addresses
MAX_FLOAT32_ACCUMULATORS = 32
MAX_SEGMENTS = 8             # that one program adds
STAGES = (3, 4, 6, 8)
SCRATCH_PRICE = 8            # a byte of scratch is written and read, and in memory: so many from the L2 cache
SECOND_KERNEL = 72 << 10     # bytes that a processor could read while a second kernel starts
SHARED_MEMORY = {80: 163, 90: 227, 100: 227}
"""KiB that a program may have, by capability; others have OTHER_SHARED_MEMORY."""
OTHER_SHARED_MEMORY = 99
MAX_SHARED = 220 << 10
MEMORY_BOUND_ROWS = 256
ROW_BYTES = 128              # of a tile's row, 64 numbers of 16 bits or 32 of 32
GROUP = 8                    # tiles of rows that go through the weight together, so that it comes from the L2 cache


@triton.jit
def _subtree(x, weight, is_row, is_column, start, width, SEGMENTS: tl.constexpr, BLOCK_K: tl.constexpr,
             IS_EVEN: tl.constexpr):
    """Adds SEGMENTS segments of `width` from k = `start` on. x and weight point to tiles at k = 0."""
    # The width is no constant: a loop of one known turn would vanish, and the tree's addition into the dot.
    if SEGMENTS == 1:
        total = tl.zeros((x.shape[0], weight.shape[1]), tl.float32)
        for k in range(0, width, BLOCK_K):
            is_x, is_weight = is_row, is_column
            if not IS_EVEN:
                is_k = k + tl.arange(0, BLOCK_K) < width
                is_x, is_weight = is_x & is_k[None, :], is_weight & is_k[:, None]
            left = tl.load(x + start + k, mask=is_x, other=0.0)
            right = tl.load(weight + start + k, mask=is_weight, other=0.0)
            if left.dtype != right.dtype:
                left, right = left.to(tl.float32), right.to(tl.float32)
            total = tl.dot(left, right, total, input_precision="ieee")
    else:
        # A loop, for halves that are written out take registers for each other's addresses. 0 plus a sum is that sum.
        HALF: tl.constexpr = SEGMENTS // 2
        total = tl.zeros((x.shape[0], weight.shape[1]), tl.float32)
        for half in range(2):
            total += _subtree(x, weight, is_row, is_column, start + half * HALF * width, width, HALF, BLOCK_K, IS_EVEN)
    return total


@triton.jit(do_not_specialize=["num_rows"])
def _matmul(x, weight, bias, out, num_rows, num_columns, num_inputs, width, HAS_BIAS: tl.constexpr,
            IS_EVEN: tl.constexpr, SEGMENTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
            BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    tile, part = tl.program_id(0), tl.program_id(1)
    row_tiles, column_tiles = tl.cdiv(num_rows, BLOCK_M), tl.cdiv(num_columns, BLOCK_N)
    first = tile // (GROUP * column_tiles) * GROUP
    group = min(row_tiles - first, GROUP)
    within = tile % (GROUP * column_tiles)
    row = (first + within % group) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    column = within // group * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    is_row, is_column = row < num_rows, column < num_columns
    k = tl.arange(0, BLOCK_K)
    total = _subtree(x + row.to(tl.int64) * num_inputs + k[None, :],
                     weight + column.to(tl.int64) * num_inputs + k[:, None],
                     is_row, is_column, part * SEGMENTS * width, width, SEGMENTS, BLOCK_K, IS_EVEN)
    if HAS_BIAS:
        total += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)
    place = (part * num_rows + row).to(tl.int64) * num_columns + column
    tl.store(out + place, total.to(out.dtype.element_ty), mask=is_row & is_column)


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
               BLOCK: tl.constexpr):
    """Writes to out [M, N] the tree over sums [PARTS, M, N], and the bias."""
    size = num_rows.to(tl.int64) * num_columns
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_place = place < size
    total = _tree(sums, place, is_place, size, PARTS)
    if HAS_BIAS:
        total += tl.load(bias + place % num_columns, mask=is_place, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=is_place)


def matmul(x: Tensor, weight: Tensor, segments: int, bias: Tensor | None, out_dtype: torch.dtype,
           config: Config | None = None) -> Tensor:
    """Multiplies x [M, K] by weight [N, K]: [M, N], rounded once.

    `config` is one of `choices`, none of which changes a bit; without it the saved one is used, or else the first.
    """
    num_rows, num_inputs = x.shape
    num_columns = len(weight)
    if config is None:
        config = _config(*_shape(x, weight, segments))
    out = torch.empty(num_rows, num_columns, dtype=out_dtype, device=x.device)
    if not out.numel():
        return out
    width, parts, has_bias = num_inputs // segments, segments // config["SEGMENTS"], bias is not None
    sums = out if parts == 1 else torch.empty(parts, num_rows, num_columns, dtype=torch.float32, device=x.device)
    block_k = _block_k(x.dtype, weight.dtype)
    tiles = triton.cdiv(num_rows, config["BLOCK_M"]) * triton.cdiv(num_columns, config["BLOCK_N"])
    _matmul[(tiles, parts)](x, weight, bias, sums, num_rows, num_columns, num_inputs, width,
                            HAS_BIAS=has_bias and parts == 1, IS_EVEN=width % block_k == 0, BLOCK_K=block_k,
                            GROUP=GROUP, **config)
    if parts > 1:
        block = 1024 if out.numel() > 1024 * NUM_PROCESSORS else 256
        _add_parts[(triton.cdiv(out.numel(), block),)](sums, bias, out, num_rows, num_columns, PARTS=parts,
                                                       HAS_BIAS=has_bias, BLOCK=block)
    return out


def tune(x: Tensor, weight: Tensor, segments: int, out_dtype: torch.dtype) -> tuning.Outcome:
    """Finds and saves the fastest configuration for these shapes, and for all M up to the next power of two."""
    shape = _shape(x, weight, segments)
    _config.cache_clear()
    return tuning.tune("linear", key(*shape), choices(*shape),
                       lambda config: matmul(x, weight, segments, None, out_dtype, config))


def _shape(x: Tensor, weight: Tensor, segments: int) -> tuple[int, int, int, int, bool, int]:
    rows = min(max(triton.next_power_of_2(len(x)), 16), 4096)
    is_exact = _block_k(x.dtype, weight.dtype) == 32
    return rows, len(weight), x.shape[1], segments, is_exact, tuning.capability()


def _block_k(*dtypes: torch.dtype) -> int:
    """Returns a tile's length along k, the same for all M. 16-bit numbers of two kinds are multiplied as float32, which
    has no matrix instruction."""
    return 64 if dtypes in ((torch.bfloat16,) * 2, (torch.float16,) * 2) else 32


@functools.cache
def _config(*shape: Any) -> Config:
    return tuning.best("linear", key(*shape), choices(*shape))


def key(rows: int, columns: int, inputs: int, segments: int, is_exact: bool, capability: int) -> str:
    return f"{rows} x [{columns}, {inputs}] in {segments}, {'float32' if is_exact else '16 bits'}"


def choices(rows: int, columns: int, inputs: int, segments: int, is_exact: bool, capability: int) -> tuple[Config, ...]:
    """Returns the configurations that may be fastest for so many rows, the best guess first."""
    shared = SHARED_MEMORY.get(capability, OTHER_SHARED_MEMORY) << 10
    tiles = [(64, 32), (64, 64)]
    if not is_exact:
        tiles += [(64, 128)] if rows <= 64 else [(64, 128), (128, 64), (128, 128), (128, 256)]
    found: list[Config] = []
    for (block_m, block_n), own in itertools.product(tiles, _powers(segments)):
        if num_warps := _num_warps(block_m * block_n, own, is_exact, capability):
            most = shared // ((block_m + block_n) * ROW_BYTES)
            found += [{"BLOCK_M": block_m, "BLOCK_N": block_n, "SEGMENTS": own, "num_warps": num_warps,
                       "num_stages": num_stages} for num_stages in STAGES if num_stages <= most]
    return tuple(sorted(found, key=lambda config: _guess(config, rows, columns, inputs, segments)))


def _powers(segments: int) -> list[int]:
    return [1 << level for level in range(min(segments, MAX_SEGMENTS).bit_length())]


def _num_warps(tile: int, segments: int, is_exact: bool, capability: int) -> int:
    """Returns the fewest warps whose registers hold the sums, a tile for each level of the tree; 0 if none do."""
    has_wgmma = capability == 90 and not is_exact
    most = {4: MAX_ACCUMULATORS, 8: MAX_FLOAT32_ACCUMULATORS if is_exact else
            MAX_WGMMA_ACCUMULATORS if has_wgmma else MAX_ACCUMULATORS}
    fewest = 8 if is_exact or tile > (64 * 128 if has_wgmma else 64 * 32) else 4
    return next((warps for warps in (4, 8)
                 if warps >= fewest and tile // (32 * warps) * segments.bit_length() <= most[warps]), 0)


def _guess(config: Config, rows: int, columns: int, inputs: int, segments: int) -> tuple[int, int]:
    """Ranks a configuration: the bytes that pass while programs take turns, dear ones counted more often; then how ill
    its stages fit."""
    block_m, block_n, parts = config["BLOCK_M"], config["BLOCK_N"], segments // config["SEGMENTS"]
    programs = triton.cdiv(rows, block_m) * triton.cdiv(columns, block_n) * parts
    turn = (min(rows, block_m) + block_n) * 2 * (inputs // parts)
    if parts > 1:
        turn += min(rows, block_m) * block_n * 4 * SCRATCH_PRICE
    turns = triton.cdiv(programs, NUM_PROCESSORS)
    # Few rows wait for memory, and the more is under way the better: of one program, or of two that share a processor.
    num_stages, most = config["num_stages"], MAX_SHARED if programs <= NUM_PROCESSORS else MAX_SHARED // 2
    is_wasteful = (block_m + block_n) * ROW_BYTES * num_stages > most
    lack = num_stages if rows > MEMORY_BOUND_ROWS or is_wasteful else -num_stages
    return turns * turn + (SECOND_KERNEL if parts > 1 else 0), lack
