"""silu_mul in Triton: float32 inside, one rounding at the end."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _silu_mul(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + column, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=is_column)


def silu_mul(gate_up: Tensor) -> Tensor:
    num_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_rows, width, dtype=gate_up.dtype, device=gate_up.device)
    if out.numel():
        _silu_mul[(num_rows, triton.cdiv(width, BLOCK))](gate_up, out, WIDTH=width, BLOCK=BLOCK)
    return out
