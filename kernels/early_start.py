"""Kernels that begin while the one before them ends, which Hopper and later GPUs can: programmatic dependent launch.

A kernel launched with `options()` may begin as soon as each program of the kernel before it has ended or called
`release`. So that no result depends on when it does, every program of such a kernel calls `wait` before it reads or
writes memory. Behind it all earlier kernels have ended, and what they wrote is seen: the one before has, and it waited
in its turn, or was launched in the ordinary way. Ahead of it there may be arithmetic, and `prefetch`.
"""

from typing import Any

import triton
import triton.language as tl

from penstock.kernels import tuning

FIRST_CAPABILITY = 90        # Hopper's
SECTOR = tl.constexpr(32)
"""Bytes of memory that a cache fetches at least."""


def options() -> dict[str, Any]:
    """Returns the launch arguments of such a kernel, the constant IS_EARLY among them."""
    return {"IS_EARLY": True, "launch_pdl": True} if tuning.capability() >= FIRST_CAPABILITY else {"IS_EARLY": False}


@triton.jit
def wait(IS_EARLY: tl.constexpr):
    """Waits until all earlier kernels have ended and what they wrote is seen."""
    if IS_EARLY:
        tl.extra.cuda.gdc_wait()


@triton.jit
def release(IS_EARLY: tl.constexpr):
    """Lets the next kernel begin, once all programs are here."""
    if IS_EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def prefetch(addresses):
    """Brings the sector of each address to the L2 cache. All writes go there too, so it is no matter if an earlier
    kernel still writes what is fetched."""
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l",
                              [addresses.to(tl.int64, bitcast=True)], dtype=tl.int32, is_pure=False, pack=1)
