"""The gated activation of SwiGLU (Shazeer 2020)."""

from typing import Protocol

from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor


class Implementation(Protocol):
    """Says what the module of each kernel set offers."""

    def silu_mul(self, gate_up: Tensor) -> Tensor: ...


_implementation: Implementation = dispatch.choose("silu_mul")


def silu_mul(gate_up: Tensor) -> Tensor:
    """Returns silu(gate) * up, where gate_up [T, 2 * I] is gate and up side by side: [T, I], the same dtype.

    float32, bfloat16 or float16. Raises ValueError for another dtype or an odd width.
    """
    op = "silu_mul"
    check_axes(op, "gate_up", gate_up, "T, 2 * I")
    check_tensor(op, "gate_up", gate_up, gate_up.shape, *FLOATS)
    if gate_up.shape[1] % 2:
        raise ValueError(f"{op}: gate_up has shape {list(gate_up.shape)}, its width must be even")
    return _implementation.silu_mul(gate_up)
