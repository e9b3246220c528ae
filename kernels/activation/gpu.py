"""Activations in Triton: float32 inside, one rounding at the end."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels import early_start
from penstock.kernels.activation.kind import Activation
from penstock.kernels.early_start import release, wait

BLOCK = 1024


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """Returns the activation of float32 numbers."""
    if ACTIVATION == "silu":
        out = x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "gelu":
        out = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        out = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == "gelu_sigmoid":
        out = x / (1.0 + tl.exp(-1.702 * x))
    elif ACTIVATION == "sigmoid":
        out = 1.0 / (1.0 + tl.exp(-x))
    else:
        out = tl.where(x < 0.0, 0.0, x)
        if ACTIVATION == "relu_squared":
            out = out * out
    return out


@triton.jit
def gated(gate, up, ACTIVATION: tl.constexpr):
    """Returns `up` times the activation of the gate, of float32 numbers."""
    if ACTIVATION == "clamped_swiglu":
        gate = tl.minimum(gate, 7.0)
        out = activated(gate, "gelu_sigmoid") * (tl.minimum(tl.maximum(up, -7.0), 7.0) + 1.0)
    else:
        out = activated(gate, ACTIVATION) * up
    return out


@triton.jit
def _activation(x, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr, IS_GATED: tl.constexpr,
                IS_EARLY: tl.constexpr):
    wait(IS_EARLY)
    release(IS_EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < WIDTH
    x += row * WIDTH * (2 if IS_GATED else 1)
    value = tl.load(x + column, mask=is_column, other=0.0).to(tl.float32)
    if IS_GATED:
        up = tl.load(x + WIDTH + column, mask=is_column, other=0.0).to(tl.float32)
        value = gated(value, up, ACTIVATION)
    else:
        value = activated(value, ACTIVATION)
    tl.store(out + row * WIDTH + column, value.to(out.dtype.element_ty), mask=is_column)


def activate(x: Tensor, activation: Activation) -> Tensor:
    return _launch(x, activation, x.shape[1], is_gated=False)


def activate_gate(gate_up: Tensor, activation: Activation) -> Tensor:
    return _launch(gate_up, activation, gate_up.shape[1] // 2, is_gated=True)


def _launch(x: Tensor, activation: Activation, width: int, is_gated: bool) -> Tensor:
    out = torch.empty(len(x), width, dtype=x.dtype, device=x.device)
    if out.numel():
        _activation[(len(x), triton.cdiv(width, BLOCK))](
            x, out, WIDTH=width, BLOCK=BLOCK, ACTIVATION=str(activation), IS_GATED=is_gated,
            **early_start.options())
    return out
