"""Adds up the rows of segments, one row after the other, so that rows that come in parts have the sums of the whole."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.segment_sum import reference

_segment_sum = dispatch.choose(reference.segment_sum)


def segment_sum(x: Tensor, counts: Tensor, sums: Tensor) -> None:
    """Adds to each of the sums [S, C], float32, in place, the next counts[s] rows of x, in float32 and in their order.

    x       [T, C]  float32, bfloat16 or float16; the segments' rows one after the other
    counts  [S]     int32; rows of each segment, their sum is T

    Raises ValueError for shapes, dtypes or counts that do not fit together; a GPU does not look at the values of
    counts.
    """
    op = "segment_sum"
    check_axes(op, "x", x, "T, C")
    check_axes(op, "counts", counts, "S")
    check_tensor(op, "x", x, x.shape, *FLOATS)
    check_tensor(op, "counts", counts, counts.shape, torch.int32)
    check_tensor(op, "sums", sums, (len(counts), x.shape[1]), torch.float32)
    _segment_sum(x, counts, sums)
