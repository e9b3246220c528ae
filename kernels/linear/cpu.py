"""The linear layer in C++ (csrc/linear.cpp)."""

import ctypes

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.linear.packed_weight import DenseData
from penstock.kernels.memory import huge


def pack(weight: Tensor, segments: int) -> Tensor:
    """Returns the weight in panels, the header of which says what they hold."""
    size, dtype = ctypes.c_int64(), native.DTYPES[weight.dtype]
    native.library.packed_size(dtype, *weight.shape, segments, ctypes.byref(size))
    data = huge(size.value)
    native.library.pack(weight.data_ptr(), dtype, *weight.shape, segments, data.data_ptr())
    return data


def linear(x: Tensor, packed: DenseData, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    rows, dtypes = len(x), native.DTYPES
    out = torch.empty(rows, packed.out_features, dtype=out_dtype)
    bias_data, bias_dtype = (None, 0) if bias is None else (bias.data_ptr(), dtypes[bias.dtype])
    native.library.linear(x.data_ptr(), dtypes[x.dtype], rows, packed.data.data_ptr(), bias_data, bias_dtype,
                          out.data_ptr(), dtypes[out_dtype])
    return out


def linear_apart(x: Tensor, packed: DenseData) -> Tensor:
    out = torch.empty(packed.segments, len(x), packed.out_features)
    native.library.linear_apart(x.data_ptr(), native.DTYPES[x.dtype], len(x), packed.data.data_ptr(), out.data_ptr())
    return out


def weight_rows(packed: DenseData, ids: Tensor) -> Tensor:
    out = torch.empty(len(ids), packed.in_features, dtype=packed.dtype)
    native.library.weight_rows(packed.data.data_ptr(), ids.data_ptr(), len(ids), out.data_ptr(),
                                native.DTYPES[out.dtype])
    return out
