"""Which implementation of the kernels this process uses: chosen once, by the variable KERNELS, never silently."""

import functools
import importlib
import os
from types import ModuleType

KERNEL_SETS = ("reference",)


@functools.cache
def kernel_set() -> str:
    """The name of the kernel set of this process, for its log line and for `numerics`.

    Raises ValueError if KERNELS names a set that this version does not have.
    """
    name = os.environ.get("KERNELS") or KERNEL_SETS[0]
    if name not in KERNEL_SETS:
        raise ValueError(
            f"KERNELS={name}: these kernels do not exist in this version, which has: {', '.join(KERNEL_SETS)}"
        )
    return name


def choose(op: str) -> ModuleType:
    """The module that implements `op`. Each op binds it once, at import."""
    return importlib.import_module(f"kernels.{op}.{kernel_set()}")
