"""Which tiles, warps and stages the linear kernel may be launched with, and which are likely to be fastest."""

import functools
import itertools
from dataclasses import dataclass

import torch
import triton

from penstock.kernels.tuning import Config

NUM_PROCESSORS = 128         # about a GPU's; it takes no exact number to guess
MAX_ACCUMULATORS = 96        # registers of a thread, of 255, with mma.sync; more and they spill
MAX_WGMMA_ACCUMULATORS = {4: 128, 8: 192}  # by warps, for operands take none; with few warps addresses take more
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
PERSISTENT_ROWS = 512
PERSISTENT_WARPS = 8         # that fill a processor's registers
ROW_BYTES = 128              # of a tile's row, 64 numbers of 16 bits or 32 of 32

Rank = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """Describes products of so many rows with a weight [columns, inputs], on a GPU of this capability."""

    rows: int
    columns: int
    inputs: int
    segments: int
    is_exact: bool               # computed in float32, without matrix instructions
    is_wide: bool                # what comes out is float32
    capability: int

    def key(self) -> str:
        kind = "float32" if self.is_exact else f"16 bits{' to float32' * self.is_wide}"
        return f"{self.rows} x [{self.columns}, {self.inputs}] in {self.segments}, {kind}"


@functools.cache
def num_processors(device: torch.device) -> int:
    """Returns how many programs a device runs at a time, if each takes a processor of its own."""
    if device.type != "cuda":
        return NUM_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def choices(shape: Shape) -> tuple[Config, ...]:
    """Returns the configurations of the fixed order that may be fastest, the best guess first."""
    tiles = [(64, 32), (64, 64)]
    if not shape.is_exact:
        tiles += [(64, 128)] if shape.rows <= 64 else [(64, 128), (128, 64), (128, 128), (128, 256)]
    found: list[tuple[Rank, Config]] = []
    for (block_m, block_n), own in itertools.product(tiles, _powers(shape.segments)):
        if num_warps := _num_warps(block_m * block_n, own, shape.is_exact, shape.capability):
            config = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SEGMENTS": own, "num_warps": num_warps}
            for is_persistent in (0, 1)[:1 + _may_persist(config, shape)]:
                found += staged({**config, "IS_PERSISTENT": is_persistent}, shape)
    return in_order(found)


def staged(config: Config, shape: Shape) -> list[tuple[Rank, Config]]:
    """Returns a configuration with each number of stages that it has room for, and how they rank."""
    rank = _guess(config, shape)
    fitting = [num_stages for num_stages in STAGES if num_stages <= _most_stages(config, shape)]
    return [((place, *rank), {**config, "num_stages": num_stages})
            for place, num_stages in enumerate(sorted(fitting, key=lambda stages: _lack(stages, config, shape)))]


def in_order(found: list[tuple[Rank, Config]]) -> tuple[Config, ...]:
    """Returns the configurations of `staged`, the best guess first: of each tile the best number of stages, then the
    second best, so that a few of the first differ in more than their stages."""
    return tuple(config for _, config in sorted(found, key=lambda ranked: ranked[0]))


def _may_persist(config: Config, shape: Shape) -> bool:
    return shape.rows >= PERSISTENT_ROWS and not shape.is_exact and config["num_warps"] == PERSISTENT_WARPS


def _most_stages(config: Config, shape: Shape) -> int:
    """Returns how many stages have room in shared memory, where a persistent kernel also turns what it writes."""
    block_m, block_n = config["BLOCK_M"], config["BLOCK_N"]
    shared = SHARED_MEMORY.get(shape.capability, OTHER_SHARED_MEMORY) << 10
    if config["IS_PERSISTENT"]:
        shared -= block_m * block_n * (4 if shape.is_wide or config["SEGMENTS"] < shape.segments else 2)
    return shared // ((block_m + block_n) * ROW_BYTES)


def _powers(segments: int) -> list[int]:
    return [1 << level for level in range(min(segments, MAX_SEGMENTS).bit_length())]


def _num_warps(tile: int, segments: int, is_exact: bool, capability: int) -> int:
    """Returns the fewest warps whose registers hold the sums, a tile for each level of the tree; 0 if none do."""
    has_wgmma = capability == 90 and not is_exact
    most = (MAX_WGMMA_ACCUMULATORS if has_wgmma else
            dict.fromkeys((4, 8), MAX_FLOAT32_ACCUMULATORS if is_exact else MAX_ACCUMULATORS))
    fewest = 8 if is_exact or tile > (64 * 128 if has_wgmma else 64 * 32) else 4
    return next((warps for warps in (4, 8)
                 if warps >= fewest and tile // (32 * warps) * segments.bit_length() <= most[warps]), 0)


def _guess(config: Config, shape: Shape) -> tuple[int, int]:
    """Ranks a configuration: the bytes that pass while programs take turns, dear ones counted more often; then whether
    tiles follow each other without a pause."""
    block_m, block_n, parts = config["BLOCK_M"], config["BLOCK_N"], shape.segments // config["SEGMENTS"]
    turn = (min(shape.rows, block_m) + block_n) * 2 * (shape.inputs // parts)
    if parts > 1:
        turn += min(shape.rows, block_m) * block_n * 4 * SCRATCH_PRICE
    turns = triton.cdiv(_num_programs(config, shape), NUM_PROCESSORS)
    return turns * turn + (SECOND_KERNEL if parts > 1 else 0), -config["IS_PERSISTENT"]


def _lack(num_stages: int, config: Config, shape: Shape) -> int:
    """Tells how ill so many stages fit. Few rows wait for memory, and the more is under way the better: of
    one program, or of two that share a processor."""
    most = MAX_SHARED if _num_programs(config, shape) <= NUM_PROCESSORS else MAX_SHARED // 2
    is_wasteful = (config["BLOCK_M"] + config["BLOCK_N"]) * ROW_BYTES * num_stages > most
    return num_stages if shape.rows > MEMORY_BOUND_ROWS or is_wasteful else -num_stages


def _num_programs(config: Config, shape: Shape) -> int:
    parts = shape.segments // config["SEGMENTS"]
    return int(triton.cdiv(shape.rows, config["BLOCK_M"]) * triton.cdiv(shape.columns, config["BLOCK_N"]) * parts)
