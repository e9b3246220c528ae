"""RMS norm in Triton: a program for each row, which it holds in registers; one rounding at the end."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels import early_start
from penstock.kernels.early_start import release, wait


@triton.jit
def _rms_norm(x, residual, weight, out, total, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
              HAS_RESIDUAL: tl.constexpr, IS_EARLY: tl.constexpr):
    wait(IS_EARLY)
    release(IS_EARLY)
    row = tl.program_id(0).to(tl.int64) * WIDTH
    column = tl.arange(0, BLOCK)
    is_column = column < WIDTH
    value = tl.load(x + row + column, mask=is_column, other=0.0)
    if HAS_RESIDUAL:
        added = tl.load(residual + row + column, mask=is_column, other=0.0)
        value = (value.to(tl.float32) + added.to(tl.float32)).to(value.dtype)
        tl.store(total + row + column, value, mask=is_column)
    exact = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(exact * exact, axis=0) / WIDTH + eps)
    normed = exact * scale * tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(out + row + column, normed.to(out.dtype.element_ty), mask=is_column)


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    num_rows, width = x.shape
    out, total = torch.empty_like(x), x if residual is None else torch.empty_like(x)
    if num_rows:
        block = triton.next_power_of_2(width)
        # The order of the sum follows from block and warps, and those from the width alone.
        _rms_norm[(num_rows,)](x, residual, weight, out, total, eps, WIDTH=width, BLOCK=block,
                               HAS_RESIDUAL=residual is not None, num_warps=min(16, max(1, block // 256)),
                               **early_start.options())
    return out, total
