"""The linear layer over coded weights in C++ (csrc/quantised.h)."""

import ctypes

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.memory import huge
from penstock.kernels.native import address
from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_data import CodedData
from penstock.kernels.quantised_linear.coded_weight import CodedWeight


def pack(coded: CodedWeight, segments: int, activations: Activations) -> tuple[Tensor, ...]:
    """Returns the weight in panels, the header of which says what they hold."""
    weight = native.structure("CodedWeight")(
        outputs=coded.out_features, inputs=coded.in_features, segments=segments, start=coded.start, group=coded.group,
        span=coded.span, bits=coded.bits, zero=coded.zero, is_whole=activations is Activations.INT8,
        codes=address(coded.codes), scales=address(coded.scales), zeros=address(coded.zeros),
        table=address(coded.table), minima=address(coded.minima), factors=address(coded.factors),
        offsets=address(coded.offsets))
    size = ctypes.c_int64()
    native.library.packed_coded_size(ctypes.addressof(weight), ctypes.byref(size))
    data = huge(size.value)
    native.library.pack_coded(ctypes.addressof(weight), data.data_ptr())
    return (data,)


def linear(x: Tensor, packed: CodedData, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    out = torch.empty(len(x), packed.out_features, dtype=out_dtype)
    native.library.linear(x.data_ptr(), native.DTYPES[x.dtype], len(x), packed.data[0].data_ptr(), address(bias),
                          native.dtype_of(bias), out.data_ptr(), native.DTYPES[out_dtype])
    return out


def linear_apart(x: Tensor, packed: CodedData) -> Tensor:
    out = torch.empty(packed.segments, len(x), packed.out_features)
    native.library.linear_apart(x.data_ptr(), native.DTYPES[x.dtype], len(x), packed.data[0].data_ptr(), out.data_ptr())
    return out


def weight_rows(packed: CodedData, ids: Tensor) -> Tensor:
    out = torch.empty(len(ids), packed.in_features, dtype=packed.dtype)
    native.library.weight_rows(packed.data[0].data_ptr(), ids.data_ptr(), len(ids), out.data_ptr(),
                               native.DTYPES[out.dtype])
    return out
