"""Running a test on each set of kernels, and on each instruction path of the compiled ones."""

import functools
import inspect
import re
from importlib import import_module

import pytest
import torch

from penstock.kernels import dispatch, interpreter, native
from tests.on_gpu import OnGpu

OPS = ("activation", "causal_conv", "experts", "full_attention", "kv_write", "layer_norm", "linear", "lora",
       "paged_attention", "prompt_logprobs", "quantised_linear", "ranks", "recurrence", "rms_norm", "rope",
       "rope_kv_write", "route", "sample", "segment_sum", "softcap")
HAS_GPU = torch.cuda.is_available()
CPU_SETS = tuple(f"cpu-{path}" for path in native.processor_paths())
"""The first is the one that serves on this machine, if it has no GPU."""
GPU_SETS = (pytest.param("gpu", marks=pytest.mark.gpu) if HAS_GPU else "gpu",)
"""Without a GPU they run in Triton's interpreter."""
PROCESSOR_SETS = (*CPU_SETS, "reference")
COMPILED_SETS = (*CPU_SETS, *GPU_SETS)
ALL_SETS = (*PROCESSOR_SETS, *GPU_SETS)
FAST_SETS = ALL_SETS if HAS_GPU else PROCESSOR_SETS
"""The interpreter takes tens of milliseconds to sample a row."""
CHECKED_SETS = PROCESSOR_SETS if HAS_GPU else ALL_SETS
"""They look at the values of their arguments, for which a GPU would have to wait."""

if not HAS_GPU:
    interpreter.prepare()


def few(name: str, many: int, few: int) -> int:
    """How many rows a test takes: `few` of them in the interpreter."""
    return few if name == "gpu" and not HAS_GPU else many


@functools.cache
def chosen(op: str) -> list[str]:
    """The functions that an op takes from this process's kernel set, by their names there."""
    source = inspect.getsource(import_module(f"penstock.kernels.{op}"))
    return re.findall(r"^_(\w+) = dispatch\.choose\(reference\.\1\)$", source, re.M)


def use(monkeypatch: pytest.MonkeyPatch, name: str, is_real: bool = False) -> None:
    """Let the ops of this process, and of those that it starts, be `reference`, `gpu`, or those of `cpu-{path}`, which
    may be `cpu-amx`, too.

    `is_real`: tensors are where the ops want them, and need not be carried to a GPU and back.
    """
    kind, _, path = name.partition("-")
    monkeypatch.setenv("KERNELS", kind)
    monkeypatch.setenv("KERNELS_PATH", path)
    # What is cached holds for as long as the rest: then what was cached before comes back.
    monkeypatch.setattr(dispatch, "kernel_set", functools.cache(dispatch.kernel_set.__wrapped__))
    for op in OPS:
        package = import_module(f"penstock.kernels.{op}")
        implementation = import_module(f"{package.__name__}.{kind}")
        if kind == "gpu" and HAS_GPU and not is_real:
            implementation = OnGpu(implementation)
        for function in chosen(op):
            monkeypatch.setattr(package, f"_{function}", getattr(implementation, function))
    if path:
        library = native.processor_paths()[0] if path == native.TILES else path
        monkeypatch.setattr(native, "library", native.load(library))
