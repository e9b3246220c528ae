"""The activations of feed-forward networks, alone or as the gate of another number (GLU variants, Shazeer 2020)."""

from enum import StrEnum
from typing import Protocol

from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor


class Activation(StrEnum):
    """Names a function of one number x; `sigmoid` is 1 / (1 + e^-x)."""

    SILU = "silu"                        # x * sigmoid(x)
    GELU = "gelu"                        # x * Φ(x), with Φ of the normal distribution (Hendrycks and Gimpel 2016)
    GELU_TANH = "gelu_tanh"              # its approximation x / 2 * (1 + tanh(√(2 / π) * (x + 0.044715 x³)))
    GELU_SIGMOID = "gelu_sigmoid"        # its approximation x * sigmoid(1.702 x)
    SIGMOID = "sigmoid"                  # 1 / (1 + e^-x)
    RELU = "relu"                        # max(0, x)
    RELU_SQUARED = "relu_squared"        # max(0, x)² (So et al. 2021)
    CLAMPED_SWIGLU = "clamped_swiglu"    # gpt-oss's (u + 1) * g * sigmoid(1.702 g), gate g up to 7, up u from -7 to 7

    @property
    def number(self) -> int:
        """Returns its number in csrc/abi.h."""
        return _ORDER.index(self)


_ORDER = tuple(Activation)


class Implementation(Protocol):
    """Says what the module of each kernel set offers."""

    def activate(self, x: Tensor, activation: Activation) -> Tensor: ...

    def activate_gate(self, gate_up: Tensor, activation: Activation) -> Tensor: ...


_implementation: Implementation = dispatch.choose("activation")


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Returns the activation of each number of x [T, I], in its dtype: float32, bfloat16 or float16.

    Raises ValueError for another dtype or shape, and for the activation of a gate.
    """
    if activation is Activation.CLAMPED_SWIGLU:
        raise ValueError(f"activate: {activation} is for gates alone")
    check_axes("activate", "x", x, "T, I")
    check_tensor("activate", "x", x, x.shape, *FLOATS)
    return _implementation.activate(x, activation)


def activate_gate(gate_up: Tensor, activation: Activation) -> Tensor:
    """Returns activation(gate) * up, where gate_up [T, 2 * I] is gate and up side by side: [T, I], the same dtype.

    clamped_swiglu takes both. float32, bfloat16 or float16. Raises ValueError for another dtype or an odd width.
    """
    op = "activate_gate"
    check_axes(op, "gate_up", gate_up, "T, 2 * I")
    check_tensor(op, "gate_up", gate_up, gate_up.shape, *FLOATS)
    if gate_up.shape[1] % 2:
        raise ValueError(f"{op}: gate_up has shape {list(gate_up.shape)}, its width must be even")
    return _implementation.activate_gate(gate_up, activation)
