"""The activations of feed-forward networks, alone or as the gate of another number (GLU variants, Shazeer 2020)."""

from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.activation import reference
from penstock.kernels.activation.kind import Activation
from penstock.kernels.checks import FLOATS, check_axes, check_tensor

__all__ = ["Activation", "activate", "activate_gate"]

_activate = dispatch.choose(reference.activate)
_activate_gate = dispatch.choose(reference.activate_gate)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Returns the activation of each number of x [T, I], in its dtype: float32, bfloat16 or float16.

    Raises ValueError for another dtype or shape, and for the activation of a gate.
    """
    if activation is Activation.CLAMPED_SWIGLU:
        raise ValueError(f"activate: {activation} is for gates alone")
    check_axes("activate", "x", x, "T, I")
    check_tensor("activate", "x", x, x.shape, *FLOATS)
    return _activate(x, activation)


def activate_gate(gate_up: Tensor, activation: Activation) -> Tensor:
    """Returns activation(gate) * up, where gate_up [T, 2 * I] is gate and up side by side: [T, I], the same dtype.

    clamped_swiglu takes both. float32, bfloat16 or float16. Raises ValueError for another dtype or an odd width.
    """
    op = "activate_gate"
    check_axes(op, "gate_up", gate_up, "T, 2 * I")
    check_tensor(op, "gate_up", gate_up, gate_up.shape, *FLOATS)
    if gate_up.shape[1] % 2:
        raise ValueError(f"{op}: gate_up has shape {list(gate_up.shape)}, its width must be even")
    return _activate_gate(gate_up, activation)
