"""The GPU's kernels as NVIDIA's assembler makes them, for GPUs that need not be there."""

import os
import re
import subprocess
import sys

import pytest

from penstock.kernels.linear.choices import SHARED_MEMORY
from penstock.kernels.paged_attention.gpu_form import REGISTERS, SHARED_KILOBYTES


def _may_spill(line):
    """Attention, which has as many registers as let its programs run at once, may leave outside of its loops what these
    do not need. Where it computes in float32, which has no matrix instruction, and q and cache are of different dtypes,
    it is a lot, but no model asks for that."""
    spilled, looped = (int(re.search(rf"{name} +(\d+)", line)[1]) for name in ("spilled", "looped"))
    if "COMPUTE=fp32" in line:
        return spilled <= 256
    return not looped if "SEGMENT=" in line else not spilled


def _resident(line):
    """How many programs are launched for a multiprocessor, and how many have room in its registers and its memory."""
    grid, warps, registers, shared = (
        int(re.search(rf"{name} +(\d+)", line)[1]) for name in ("grid", "warps", "registers", "shared"))
    of_memory = (SHARED_KILOBYTES[int(line[3:5])] << 10) // (shared + 1024)
    return grid, min(3, REGISTERS // (32 * warps * -(-registers // 8) * 8), of_memory)


def _compile(module, *flags):
    """What a program prints that compiles kernels for both capabilities. No kernel touches memory before it may."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    program = subprocess.run([sys.executable, "-m", module, *flags], env=environment, capture_output=True, text=True,
                             check=False)
    assert program.returncode == 0, program.stderr
    lines = program.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"sm_80", "sm_90"}
    assert [line for line in lines if not _may_spill(line)] == []
    assert [line for line in lines if "too early" in line] == []
    # The gates of experts, two products of one tile, have waited for each of them since they were written.
    assert [line for line in lines if "one by one" in line and " _gates " not in line] == []
    assert {line.split()[0] for line in lines if "  early  " in line} == {"sm_90"}
    return lines


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_kernels_compile_and_keep_their_values_in_registers(every_case):
    lines = _compile("tests.kernels.compile_only", *["--every-case"] * every_case)
    # Whatever is left to --every-case, both capabilities have each kernel, each order and each kind of numbers.
    ampere, hopper = ([line.split() for line in lines if line.startswith(each)] for each in ("sm_80", "sm_90"))
    assert {words[1] for words in ampere} == {words[1] for words in hopper} >= {
        "decode_segments", "prefill_tiles", "_matmul", "_gates", "_multiply", "_recurrence", "_split", "_kv_write"}
    for compiled in (ampere, hopper):
        assert {word for words in compiled for word in words} >= {
            "bfloat16", "float32", "COMPUTE=bf16", "COMPUTE=fp32", "KIND=float", "KIND=e4m3", "KIND=int8",
            "ORDERED=False", "ORDERED=True", "HEAD_DIM=64", "HEAD_DIM=128", "HEAD_DIM=256", "HAS_SLOPES=True"}
    # Without a GPU, attention's decode launches have as many programs as one multiprocessor is thought to hold. Where
    # scores have a window, a cap, sinks and slopes at once, as no model's have, fewer have room.
    decodes = [_resident(line) for line in lines if " decode_segments " in line and "COMPUTE=fp32" not in line
               and "HAS_SLOPES=True" not in line]
    assert len(decodes) > 10
    assert [(guessed, room) for guessed, room in decodes if guessed != room] == []
    # What a norm or an activation is for has its weight fetched meanwhile, so these begin early and let it begin.
    assert {line.split()[1] for line in lines if "  early  " in line} >= {"_rms_norm", "_activation", "_matmul"}
    # The bit contract: one family of matrix instructions, however few rows there are.
    families = {tuple(word for word in line.split() if word in ("sm_80", "sm_90", "wgmma", "mma.sync"))
                for line in lines if " _matmul " in line and "BLOCK_K=64" in line}
    assert families == {("sm_80", "mma.sync"), ("sm_90", "wgmma")}


@pytest.mark.slow
def test_linears_multiply_while_they_load_whatever_is_chosen(every_case):
    """All configurations fit into a GPU, and neither the folds of segments nor the ends of tiles stop the loop."""
    lines = _compile("tests.kernels.compile_linears", *["--every-case"] * every_case)
    assert [line for line in lines if ("sm_90" in line) != ("  early  " in line)] == []
    for line in lines:
        shared, copies = (int(re.search(rf"{name} +(\d+)", line)[1]) for name in ("shared", "copies"))
        assert shared <= SHARED_MEMORY[int(line[3:5])] << 10, line
        assert copies > 1 or "_add_parts" in line, line
    of_64_rows = [line for line in lines if "sm_90" in line and re.search("BLOCK_M=(64|128) ", line)]
    assert [line for line in of_64_rows if "  wgmma  " not in line] == []
    assert len(of_64_rows) > 20
