"""Compiling the GPU's kernels where there is no GPU, as they are launched: `python -m tests.kernels.compile_only`.

Triton's compiler, NVIDIA's assembler and its disassembler need no GPU. `compiled_for` lets Triton believe that there is
one of a given capability; every launch then compiles its kernel for the arguments it has, and runs nothing. So the ops
can be called on tensors of the processor, and what comes out is never looked at.

It works in a process without TRITON_INTERPRET, which Triton reads as the kernels are defined.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

from tests.kernels.launches import LAUNCHES

CAPABILITIES = (80, 90)
"""Ampere, whose matrix instruction is mma.sync, and Hopper, which has wgmma too."""

WGMMA = "wgmma.mma_async"
TOUCHES_MEMORY = r"\b(ld|st|atom|red)(\.\w+)*\.global|\bcp\.async\.|\bbra\b|\bret;"


@dataclass(frozen=True)
class Compiled:
    """One kernel as it was launched. Registers are of a thread, bytes are too but for `shared`, a program's.

    `looped`: the instructions of innermost loops that move what was spilled. `is_serial`: no two of Hopper's matrix
    instructions are on their way at once, because the assembler saw their numbers touched in between.
    """

    name: str
    capability: int
    grid: tuple[int, ...]
    constants: str
    num_warps: int
    registers: int
    spilled: int
    looped: int
    shared: int
    matrix: str
    copies: int
    """How many copies to shared memory are under way while others' values are computed with."""
    start: str
    """"early" if it is launched while the kernel before it ends and waits for that first, "too early" if it reads or
    writes memory, or branches, before it waits; "ordered" if it is launched behind that kernel."""

    def __str__(self) -> str:
        grid = "x".join(map(str, self.grid))
        return (f"sm_{self.capability}  {self.name:28} grid {grid:10} warps {self.num_warps:2}  registers "
                f"{self.registers:3}  spilled {self.spilled:4}  looped {self.looped:3}  shared {self.shared:6}  "
                f"{self.matrix:10}  copies {self.copies:2}  {self.start}  {self.constants}")


class Target:
    """What Triton asks of a GPU's driver before it compiles."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._target.arch  # each has kernels of its own

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


class Few:
    """Says which kernels are compiled for a capability where not all are: each of them, with each kind of numbers.

    Those of float16 alone do nothing else than those of bfloat16. Attention of each size and each kind of numbers is
    compiled with the fixed order for one capability, and without it for the other. Of what else is launched, Hopper
    gets all, and Ampere all products, and each other kernel once for each kind of numbers.
    """

    def __init__(self, capability: int) -> None:
        self._is_ampere = capability == CAPABILITIES[0]
        self._compiled: set[tuple[str, tuple[str, ...]]] = set()

    def has(self, name: str, bound: dict[str, Any]) -> bool:
        """Tells whether a kernel is compiled that is launched with these arguments, and remembers it."""
        dtypes = _dtypes(bound)
        if "float16" in dtypes and "bfloat16" not in dtypes:
            return False
        if "ORDERED" in bound:
            return (bound["HEAD_DIM"].bit_length() + bound["ORDERED"]) % 2 == self._is_ampere
        if self._is_ampere and name != "_matmul" and (name, dtypes) in self._compiled:
            return False
        self._compiled.add((name, dtypes))
        return True


@contextmanager
def compiled_for(capability: int, few: Few | None = None) -> Iterator[list[Compiled]]:
    """The kernels that are launched in the block, each once for each way it is specialised; all or `few` of them."""
    found: dict[str, Compiled] = {}
    run = jit.JITFunction.run

    def compile_only(self: jit.JITFunction, *args, grid, warmup, **kwargs):
        bound = dict(zip(self.arg_names, args, strict=False)) | kwargs
        if few and not few.has(self.fn.__name__, bound):
            return None
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        if kernel.hash not in found:
            found[kernel.hash] = _describe(kernel, capability, grid, bound)
        return kernel

    results: list[Compiled] = []
    with (mock.patch.object(driver, "_active", Target(capability)),
          mock.patch.object(jit.JITFunction, "run", compile_only)):
        yield results
    results += found.values()


def _dtypes(bound: dict[str, Any]) -> tuple[str, ...]:
    """The names of the dtypes of a kernel's arguments that are no integers."""
    return tuple(sorted({str(value.dtype).removeprefix("torch.") for value in bound.values()
                         if isinstance(value, torch.Tensor) and value.is_floating_point()}))


def _describe(kernel, capability: int, grid: tuple[int, ...], bound: dict[str, Any]) -> Compiled:
    options = {"num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "maxnreg"}
    constants = " ".join(f"{name}={value}" for name, value in bound.items() if name.isupper() and name not in options)
    cubin, ptx = kernel.asm["cubin"], kernel.asm["ptx"]
    usage = _disassembled(cubin, "cuobjdump", "--dump-resource-usage")
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    # nvdisasm takes longer than most kernels take to compile, and what it is asked for others do not have.
    is_asked = stack or WGMMA in ptx
    code = _disassembled(cubin, "nvdisasm", "-c").splitlines() if is_asked else []
    return Compiled(kernel.metadata.name, capability, grid, f"{' '.join(_dtypes(bound))}  {constants}",
                    kernel.metadata.num_warps, registers, stack, _looped_spills(code), kernel.metadata.shared,
                    _matrix(ptx, code),
                    max(map(int, re.findall(r"cp\.async\.wait_group\s+(\d+);", ptx)), default=0),
                    _start(ptx) if kernel.metadata.launch_pdl else "ordered")


def _matrix(ptx: str, code: Sequence[str]) -> str:
    """The matrix instructions; of wgmma also whether one is under way while the next is given, and none is waited for
    at once, and whether the assembler lets them run one by one after all."""
    if WGMMA in ptx:
        kind = "wgmma" if "wgmma.wait_group.sync.aligned 1;" in ptx else "lone wgmma"
        return kind + " one by one" * (0 < _count("HGMMA", code) <= _count("WARPGROUP.ARRIVE", code))
    return "mma.sync" if "mma.sync" in ptx else "-"


def _start(ptx: str) -> str:
    ahead, waits, _ = ptx.partition("griddepcontrol.wait")
    return "early" if waits and not re.search(TOUCHES_MEMORY, ahead[ahead.index("{"):]) else "too early"


def _disassembled(cubin: bytes, program: str, option: str) -> str:
    """What a disassembler that comes with Triton says of a kernel."""
    path = Path(triton.__file__).parent / "backends/nvidia/bin" / program
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([str(path), option, file.name], capture_output=True, text=True, check=True).stdout


def _looped_spills(code: list[str]) -> int:
    """How many instructions of innermost loops, from a label to a jump back to it, load or store what was spilled."""
    labels = {line.split(":")[0]: number for number, line in enumerate(code) if line.startswith(".L")}
    jumps = [(labels.get(jump[1], number), number) for number, line in enumerate(code)
             if (jump := re.search(r"BRA.*`\((\.L\w+)\)", line))]
    loops = [(start, end) for start, end in jumps if start < end]
    innermost = [(start, end) for start, end in loops
                 if not any((start, end) != other and start <= other[0] and other[1] <= end for other in loops)]
    return sum(_count(r"\b(LDL|STL)\b", code[start:end]) for start, end in innermost)


def _count(pattern: str, code: list[str]) -> int:
    return sum(re.search(pattern, line) is not None for line in code)


def main() -> None:
    """Compiles all that is launched for both capabilities with `--every-case`, without it few of it."""
    for capability in CAPABILITIES:
        few = None if "--every-case" in sys.argv else Few(capability)
        with compiled_for(capability, few) as kernels:
            for launch in LAUNCHES:
                launch()
        print(*kernels, sep="\n")


if __name__ == "__main__":
    main()
