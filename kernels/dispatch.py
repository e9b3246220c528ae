"""Which implementation of the kernels this process uses: chosen once, never silently.

KERNELS=reference | cpu asks for one, and it is an error if that cannot be. Otherwise it is cpu, or the reference, with
a warning, where there are no compiled kernels for the processor.
"""

import ctypes
import functools
import importlib
import logging
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

KERNEL_SETS = ("reference", "cpu")

log = logging.getLogger(__name__)


@functools.cache
def kernel_set() -> str:
    """The name of the kernel set of this process. Raises ValueError if what is asked for cannot be had."""
    name = os.environ.get("KERNELS")
    if name and name not in KERNEL_SETS:
        raise ValueError(
            f"KERNELS={name}: these kernels do not exist in this version, which has: {', '.join(KERNEL_SETS)}"
        )
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


def path() -> str:
    """The kernel set with its instruction path, for the log and for `numerics`."""
    return "reference" if kernel_set() == "reference" else f"cpu-{_library().path}"


def set_threads(count: int, cpus: Sequence[int] = ()) -> None:
    """How many threads the ops use, the calling one included, and where each of them stays, if that is to be fixed.

    To be called by the thread that calls the ops. Where compiled ops compute, torch has but trifles to do, for which
    threads of its own would take cores away.
    """
    if kernel_set() == "cpu":
        _library().set_threads(count, (ctypes.c_int64 * count)(*cpus) if cpus else None)
    torch.set_num_threads(count if kernel_set() == "reference" else 1)


def choose(op: str) -> ModuleType:
    """The module that implements `op`. Each op binds it once, at import."""
    return importlib.import_module(f"kernels.{op}.{kernel_set()}")


def _library() -> Any:
    return importlib.import_module("kernels.native").library
