"""Activations in torch: float64, one rounding."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels.activation.kind import Activation

FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.SILU: functional.silu,
    # torch's own take 1 away from something near it: what is left differs with the number's place in a vector.
    Activation.GELU: lambda x: x * torch.erfc(-x / 2**0.5) / 2,
    Activation.GELU_TANH: lambda x: x * ((8 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)).sigmoid(),
    Activation.GELU_SIGMOID: lambda x: x * (1.702 * x).sigmoid(),
    Activation.SIGMOID: torch.sigmoid,
    Activation.RELU: functional.relu,
    Activation.RELU_SQUARED: lambda x: functional.relu(x).square(),
}


def activate(x: Tensor, activation: Activation) -> Tensor:
    return FUNCTIONS[activation](x.double()).to(x.dtype)


def activate_gate(gate_up: Tensor, activation: Activation) -> Tensor:
    gate, up = gate_up.double().chunk(2, dim=1)
    if activation is Activation.CLAMPED_SWIGLU:
        gate, up = gate.clamp(max=7), up.clamp(-7, 7) + 1
        return (FUNCTIONS[Activation.GELU_SIGMOID](gate) * up).to(gate_up.dtype)
    return FUNCTIONS[activation](gate).mul_(up).to(gate_up.dtype)
