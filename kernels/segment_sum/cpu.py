"""Sums of segments in C++ (csrc/segment_sum.cpp)."""

import ctypes

from torch import Tensor

from penstock.kernels import native
from penstock.kernels.segment_sum.reference import check_counts


def segment_sum(x: Tensor, counts: Tensor, sums: Tensor) -> None:
    status = ctypes.c_int64()
    native.library.segment_sum(native.DTYPES[x.dtype], x.data_ptr(), counts.data_ptr(), len(counts), *x.shape,
                               sums.data_ptr(), ctypes.byref(status))
    if status.value:
        check_counts(x, counts.tolist())
