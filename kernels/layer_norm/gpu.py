"""Layer norm in Triton: a program for each row, which it holds in registers; one rounding at the end."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _layer_norm(x, residual, weight, bias, out, total, groups, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
                HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * WIDTH
    own = tl.program_id(0) % groups * WIDTH
    column = tl.arange(0, BLOCK)
    is_column = column < WIDTH
    value = tl.load(x + row + column, mask=is_column, other=0.0)
    if HAS_RESIDUAL:
        added = tl.load(residual + row + column, mask=is_column, other=0.0)
        value = (value.to(tl.float32) + added.to(tl.float32)).to(value.dtype)
        tl.store(total + row + column, value, mask=is_column)
    exact = value.to(tl.float32)
    # A GPU's plain division may miss the mean of equal numbers, which is then no row of zeros.
    mean = tl.div_rn(tl.sum(exact, axis=0), tl.full((), WIDTH, tl.float32))
    exact = tl.where(is_column, exact - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(exact * exact, axis=0) / WIDTH + eps)
    normed = exact * scale * tl.load(weight + own + column, mask=is_column, other=0.0).to(tl.float32)
    if HAS_BIAS:
        normed += tl.load(bias + own + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(out + row + column, normed.to(out.dtype.element_ty), mask=is_column)


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, residual: Tensor | None
) -> tuple[Tensor, Tensor]:
    num_rows, width = x.shape
    out, total = torch.empty_like(x), x if residual is None else torch.empty_like(x)
    if num_rows:
        block = triton.next_power_of_2(width)
        # The order of the sums follows from block and warps, and those from the width alone.
        _layer_norm[(num_rows,)](
            x, residual, weight, bias, out, total, len(weight), eps, WIDTH=width, BLOCK=block,
            HAS_BIAS=bias is not None, HAS_RESIDUAL=residual is not None, num_warps=min(16, max(1, block // 256)))
    return out, total
