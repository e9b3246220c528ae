"""Compiling the GPU's kernels where there is no GPU, as they are launched: `python -m tests.kernels.compile_only`.

Triton's compiler, NVIDIA's assembler and its disassembler need no GPU. `compiled_for` lets Triton believe that there is
one of a given capability; every launch then compiles its kernel for the arguments it has, and runs nothing. So the ops
can be called on tensors of the processor, and what comes out is never looked at.

It works in a process without TRITON_INTERPRET, which Triton reads as the kernels are defined.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

from tests.kernels.launches import LAUNCHES

SPARSE = 3
CAPABILITIES = (80, 90)
"""Ampere, whose matrix instruction is mma.sync, and Hopper, which has wgmma too."""

TOUCHES_MEMORY = r"\b(ld|st|atom|red)(\.\w+)*\.global|\bcp\.async\.|\bbra\b|\bret;"


@dataclass(frozen=True)
class Compiled:
    """One kernel as it was launched. Registers are of a thread, bytes are too but for `shared`, a program's."""

    name: str
    capability: int
    grid: tuple[int, ...]
    constants: str
    num_warps: int
    registers: int
    spilled: int
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
                f"{self.registers:3}  spilled {self.spilled:4}  shared {self.shared:6}  {self.matrix:10}  "
                f"copies {self.copies:2}  {self.start}  {self.constants}")


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


@contextmanager
def compiled_for(capability: int) -> Iterator[list[Compiled]]:
    """The kernels that are launched in the block, each once for each way it is specialised."""
    found: dict[str, Compiled] = {}
    run = jit.JITFunction.run

    def compile_only(self: jit.JITFunction, *args, grid, warmup, **kwargs):
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        if kernel.hash not in found:
            found[kernel.hash] = _describe(self, kernel, capability, grid, args, kwargs)
        return kernel

    results: list[Compiled] = []
    with (mock.patch.object(driver, "_active", Target(capability)),
          mock.patch.object(jit.JITFunction, "run", compile_only)):
        yield results
    results += found.values()


def _describe(
    function: jit.JITFunction, kernel, capability: int, grid: tuple[int, ...], args: tuple, kwargs: dict
) -> Compiled:
    options = {"num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "maxnreg"}
    bound = dict(zip(function.arg_names, args, strict=False)) | kwargs
    dtypes = sorted({str(value.dtype).removeprefix("torch.") for value in bound.values()
                     if isinstance(value, torch.Tensor) and value.is_floating_point()})
    constants = " ".join(f"{name}={value}" for name, value in bound.items() if name.isupper() and name not in options)
    usage, ptx = _resource_usage(kernel.asm["cubin"]), kernel.asm["ptx"]
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    return Compiled(kernel.metadata.name, capability, grid, f"{' '.join(dtypes)}  {constants}",
                    kernel.metadata.num_warps, registers, stack, kernel.metadata.shared, _matrix(ptx),
                    max(map(int, re.findall(r"cp\.async\.wait_group\s+(\d+);", ptx)), default=0),
                    _start(ptx) if kernel.metadata.launch_pdl else "ordered")


def _matrix(ptx: str) -> str:
    """The matrix instructions; of wgmma also whether one is under way while the next is given, and none is waited for
    at once."""
    if "wgmma.mma_async" in ptx:
        return "wgmma" if "wgmma.wait_group.sync.aligned 1;" in ptx else "lone wgmma"
    return "mma.sync" if "mma.sync" in ptx else "-"


def _start(ptx: str) -> str:
    ahead, waits, _ = ptx.partition("griddepcontrol.wait")
    return "early" if waits and not re.search(TOUCHES_MEMORY, ahead[ahead.index("{"):]) else "too early"


def _resource_usage(cubin: bytes) -> str:
    """What the disassembler that comes with Triton says of a kernel."""
    program = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(program), "--dump-resource-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Compiles every launch for Hopper, and for Ampere one in SPARSE of them, or with `--every-case` all."""
    for capability in CAPABILITIES:
        step = 1 if capability == CAPABILITIES[-1] or "--every-case" in sys.argv else SPARSE
        with compiled_for(capability) as kernels:
            for launch in LAUNCHES[::step]:
                launch()
        print(*kernels, sep="\n")


if __name__ == "__main__":
    main()
