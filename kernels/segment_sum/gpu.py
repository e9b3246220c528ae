"""Sums of segments in Triton: a program for each segment and some columns, over the segment's rows."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128


@triton.jit
def _segment_sum(x, counts, firsts, sums, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    segment = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < WIDTH
    x += tl.load(firsts + segment) * WIDTH + column
    sums += segment * WIDTH + column
    total = tl.load(sums, mask=is_column, other=0.0)
    for _ in range(tl.load(counts + segment)):
        total += tl.load(x, mask=is_column, other=0.0).to(tl.float32)
        x += WIDTH
    tl.store(sums, total, mask=is_column)


def segment_sum(x: Tensor, counts: Tensor, sums: Tensor) -> None:
    width = x.shape[1]
    if sums.numel():
        firsts = counts.cumsum(0) - counts
        _segment_sum[(len(counts), triton.cdiv(width, BLOCK))](x, counts, firsts, sums, WIDTH=width, BLOCK=BLOCK)
