"""How attention is cut into tiles on a GPU: what follows from heads and dtypes, and what may be tuned."""

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from penstock.kernels import tuning
from penstock.kernels.kv_cache import LARGEST
from penstock.kernels.tuning import Config

REGISTERS = 65536  # of a multiprocessor, on every GPU since Pascal
SHARED_KILOBYTES = {80: 164, 86: 100, 87: 164, 89: 100, 90: 228, 100: 228, 120: 100}
"""Of a multiprocessor, by its capability (CUDA C++ Programming Guide, 20.1, technical specifications)."""
SEGMENT = 256  # positions of the first segments, whose softmaxes many programs share: see gpu_tile.segment_of
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
_KINDS = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.int8: "int8"}


@dataclass(frozen=True, slots=True)
class Shape:
    """Holds the sizes that a form depends on, which no step changes. `is_ordered`: the bit contract holds."""

    dtype: torch.dtype
    cache_dtype: torch.dtype
    num_heads: int
    num_kv_heads: int
    head_dim: int
    is_ordered: bool
    device: torch.device
    capability: int

    @property
    def kind(self) -> str:
        """Names the way in which K and V are read."""
        name = _KINDS.get(self.cache_dtype, "float")
        return "e4m3 of the GPU" if name == "e4m3" and self.capability >= 89 else name

    @property
    def compute(self) -> torch.dtype:
        return self.dtype if self.cache_dtype in (self.dtype, *LARGEST) else torch.float32

    @property
    def block_d(self) -> int:
        return max(16, int(triton.next_power_of_2(self.head_dim)))

    @property
    def block_n(self) -> int:
        """Returns how many positions of K and V are in a tile: larger tiles spill registers."""
        is_wide = self.compute == torch.float32
        tile = 2048 if is_wide else 4096 if self.kind != "float" and self.is_ordered else 8192
        return max(16, min(64, tile // self.block_d))

    @property
    def group(self) -> int:
        """Returns how many query heads share a KV head."""
        return self.num_heads // self.num_kv_heads

    def key(self, phase: str) -> str:
        dtype, cache_dtype = (str(each).removeprefix("torch.") for each in (self.dtype, self.cache_dtype))
        return (f"{phase}, {self.num_heads} on {self.num_kv_heads} heads of {self.head_dim}, {dtype} on {cache_dtype}"
                f"{', ordered' * self.is_ordered}")


@dataclass(frozen=True, slots=True)
class Form:
    """Holds the launch arguments that follow from a shape and its configurations alone."""

    constants: Mapping[str, object]
    prefill: Mapping[str, object]
    decode: Mapping[str, object]
    prefill_heads: int
    prefill_tokens: int
    decode_heads: int
    group: int
    num_kv_heads: int
    programs: int
    is_read_as_bytes: bool

    def head_parts(self, heads: int) -> int:
        return self.num_kv_heads * -(-self.group // heads)


@functools.cache
def form_of(shape: Shape) -> Form:
    """Returns the form of a shape with the configurations that were saved for it, or else guessed ones."""
    return make_form(shape)


def make_form(shape: Shape, prefill: Config | None = None, decode: Config | None = None) -> Form:
    """Returns the form of a shape with these configurations, or else the saved ones."""
    prefill = dict(prefill or _saved(shape, "prefill"))
    decode = dict(decode or _saved(shape, "decode"))
    is_wide, is_fused = shape.compute == torch.float32, not shape.is_ordered
    unit = 2.0 ** math.floor(math.log2(LARGEST[shape.cache_dtype])) if shape.cache_dtype in LARGEST else 1.0
    constants: dict[str, object] = {
        "KIND": shape.kind, "UNIT": unit, "COMPUTE": _TYPES[shape.compute], "NUM_HEADS": shape.num_heads,
        "NUM_KV_HEADS": shape.num_kv_heads, "HEAD_DIM": shape.head_dim, "SEGMENT": SEGMENT, "BLOCK_D": shape.block_d,
        "ORDERED": shape.is_ordered}
    per_processor = decode.pop("PER_PROCESSOR")
    heads, decode_heads = min(shape.group, prefill["BLOCK_M"]), min(shape.group, 16 if is_wide else 32)
    tokens = prefill["BLOCK_M"] // heads
    return Form(
        constants=constants,
        prefill=prefill | {"HEADS": heads, "TOKENS": tokens, "enable_fp_fusion": is_fused},
        decode=decode | {"BLOCK_N": shape.block_n, "HEADS": decode_heads, "ROWS": triton.next_power_of_2(decode_heads),
                         "BLOCK_M": max(16, triton.next_power_of_2(decode_heads)), "enable_fp_fusion": is_fused,
                         "maxnreg": _registers(decode["num_warps"], per_processor)},
        prefill_heads=heads, prefill_tokens=tokens, decode_heads=decode_heads, group=shape.group,
        num_kv_heads=shape.num_kv_heads, programs=per_processor * _num_processors(shape.device),
        is_read_as_bytes=shape.kind != "float")


def choices(shape: Shape, phase: str) -> tuple[Config, ...]:
    """Returns the configurations that may be fastest, the best guess first.

    Tiles of less than 64 rows are for mma.sync, which the bit contract wants, as those of decode rows are: wgmma has
    roundings of its own.
    """
    is_wide, is_large = shape.compute == torch.float32, shape.block_d > 128
    num_stages = 2 if is_wide else 5  # two for K and V and two for the blocks they lie in, one to compute
    stages_tried = (2, 3, 4, 5) if shape.capability else (2,)  # the interpreter has none
    if phase == "decode":
        num_warps = 8 if is_wide and (is_large or shape.compute != shape.dtype) else 4
        guess = {"num_warps": num_warps, "num_stages": num_stages,
                 "PER_PROCESSOR": _resident_programs(shape, num_warps)}
        found = [{"num_warps": warps, "num_stages": stages, "PER_PROCESSOR": number}
                 for stages in stages_tried for warps, number in ((4, 1), (4, 2), (4, 3), (4, 4), (8, 1), (8, 2))]
    else:
        is_small = shape.capability < 90 or is_large or shape.kind != "float"
        block_m = (16 if is_wide else 32) if is_wide or shape.is_ordered else 64 if is_small else 128
        guess = {"BLOCK_M": block_m, "BLOCK_N": shape.block_n, "num_warps": 8,
                 "num_stages": 3 if shape.kind != "float" else num_stages}
        is_fixed = is_wide or shape.is_ordered
        found = [{"BLOCK_M": size, "BLOCK_N": keys, "num_warps": warps, "num_stages": stages}
                 for size, keys, warps, stages in itertools.product(
                     (block_m,) if is_fixed else (64, 128),
                     (shape.block_n,) if is_fixed else (shape.block_n, 2 * shape.block_n), (4, 8), stages_tried)]
    return tuple(sorted([guess, *(config for config in found if config != guess)],
                        key=lambda config: sum(config[name] != guess[name] for name in guess)))


def _resident_programs(shape: Shape, num_warps: int) -> int:
    """Returns how many programs of a decode launch a multiprocessor has room for at once. More would wait until others
    end, and those that share out the segments would not be done together.

    A thread needs 168 registers, so that no loop over tiles has to leave numbers elsewhere, and 200 for large heads,
    for a cache of another dtype, and for numbers of 8 bits on a GPU that does not know them; four tiles of K and V are
    on their way through shared memory. What the compiler makes is compared with this in
    tests/kernels/test_compile_only.py.
    """
    is_foreign = shape.kind == "e4m3" or (shape.kind == "e5m2" and shape.capability < 90)
    registers = 200 if shape.block_d > 128 or is_foreign or shape.compute != shape.dtype else 168
    shared = 4 * shape.block_n * shape.block_d * shape.cache_dtype.itemsize + (11 << 10)
    kilobytes = SHARED_KILOBYTES.get(shape.capability, 100)
    return max(1, min(3, REGISTERS // (32 * num_warps * registers), (kilobytes << 10) // shared))


def _registers(num_warps: int, per_processor: int) -> int:
    """Returns how many registers a thread may have, so that a multiprocessor has room for so many programs."""
    return min(255, REGISTERS // (32 * num_warps * per_processor) // 8 * 8)


def _saved(shape: Shape, phase: str) -> Config:
    return tuning.best("paged_attention", shape.key(phase), choices(shape, phase))


@functools.cache
def _num_processors(device: torch.device) -> int:
    return 1 if device.type == "cpu" else int(torch.cuda.get_device_properties(device).multi_processor_count)
