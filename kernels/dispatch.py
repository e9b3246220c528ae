"""Chooses which implementation of the kernels this process uses, and on which device: once, and never silently.

A GPU is used where torch finds one, a processor's compiled kernels elsewhere, and the reference, with a warning, where
there are none for the processor. `configure`, or KERNELS=reference | cpu | gpu, asks for one, and it is an error if
that cannot be. With TRITON_INTERPRET=1 the GPU's kernels run on the processor, in Triton's interpreter: exactly, and
thousands of times slower.
"""

import ctypes
import functools
import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from penstock.kernels import interpreter

KERNEL_SETS = ("reference", "cpu", "gpu")

log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(slots=True)
class _Wishes:
    device: str = "auto"
    is_deterministic: bool = False


_wishes = _Wishes()


def configure(device: str = "auto", is_deterministic: bool = False) -> None:
    """Asks for a device, and for the bit contract on a GPU (a processor always keeps it). Call it before an op is
    imported. Raises ValueError if the device cannot be had."""
    _wishes.device, _wishes.is_deterministic = device, is_deterministic
    kernel_set.cache_clear()
    kernel_set()


@functools.cache
def kernel_set() -> str:
    """Returns the name of this process's kernel set. Raises ValueError if what is asked for cannot be had."""
    name = os.environ.get("KERNELS") or None
    if name and name not in KERNEL_SETS:
        raise ValueError(
            f"KERNELS={name}: these kernels do not exist in this version, which has: {', '.join(KERNEL_SETS)}")
    if _wishes.device == "cuda" and name not in (None, "gpu"):
        raise ValueError(f"--device cuda: KERNELS={name} asks for kernels that run on the processor")
    if name == "gpu" or _wishes.device == "cuda":
        if obstacle := _no_gpu_because():
            raise ValueError(f"{'--device cuda' if _wishes.device == 'cuda' else 'KERNELS=gpu'}: {obstacle}")
        return "gpu"
    if name is None and _wishes.device == "auto" and torch.cuda.is_available():
        return "gpu"
    return _processor_set(name)


def device() -> torch.device:
    """Returns the device on which the ops want their tensors."""
    return torch.device("cuda" if kernel_set() == "gpu" and not is_interpreted() else "cpu")


def is_deterministic() -> bool:
    """Tells whether the kernels keep the bit contract: they do, except on a GPU where nobody asked for it."""
    return kernel_set() != "gpu" or _wishes.is_deterministic


def is_interpreted() -> bool:
    """Tells whether Triton's kernels run on the processor, in its interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def path() -> str:
    """Returns the kernel set with its instruction path, for the log and for `numerics`."""
    name = kernel_set()
    if name == "cpu":
        return f"cpu-{_library().path}"
    if name == "gpu":
        capability = "interpreter" if is_interpreted() else "sm{}{}".format(*torch.cuda.get_device_capability())
        return f"gpu-{capability}{'-deterministic' * is_deterministic()}"
    return name


def set_threads(count: int, cpus: Sequence[int] = ()) -> None:
    """Sets how many threads the ops use, the calling one included, and the processor on which each stays, if any.

    The thread that calls the ops must call it. Where compiled ops compute, torch has only trifles to do, for which
    threads of its own would take cores away.
    """
    if kernel_set() == "cpu":
        _library().set_threads(count, (ctypes.c_int64 * count)(*cpus) if cpus else None)
    torch.set_num_threads(count if kernel_set() == "reference" else 1)


def set_wait(factor: int) -> None:
    """Sets how long the ops' threads wait awake for the next op, as a multiple of what suits our own models. A call of
    a thread that sleeps costs as much as a small op."""
    if kernel_set() == "cpu":
        _library().set_wait(factor)


def choose(reference: _Function) -> _Function:
    """Returns the function of this process's kernel set that does what one of `reference.py` does, with the same
    parameters. Each op binds it once, at import."""
    name = kernel_set()
    if name == "gpu" and is_interpreted():
        interpreter.prepare()
    package = reference.__module__.rpartition(".")[0]
    chosen: _Function = getattr(importlib.import_module(f"{package}.{name}"), reference.__name__)
    return chosen


def _processor_set(name: str | None) -> str:
    if name == "reference":
        return name
    try:
        _library()
    except (ValueError, OSError) as error:
        for variable in ("KERNELS", "KERNELS_PATH"):
            if value := os.environ.get(variable):
                raise ValueError(f"{variable}={value}: {error}") from error
        log.warning("the reference kernels serve, many times slower than compiled ones: %s", error)
        return "reference"
    return "cpu"


def _no_gpu_because() -> str:
    """Returns why the GPU's kernels cannot run; an empty string if they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; torch's CUDA build brings it, and so does `pip install triton`"
    if is_interpreted() and _wishes.device != "cuda":
        return ""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; install a CUDA build, or use --device cpu"
    if not torch.cuda.is_available():
        return "torch finds no GPU on this machine, or no driver for it; nvidia-smi tells more. Or use --device cpu"
    return ""


def _library() -> Any:
    return importlib.import_module("penstock.kernels.native").library
