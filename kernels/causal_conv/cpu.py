"""The causal convolution in C++ (csrc/recurrence.cpp), in float32."""

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.native import DTYPES, address
from penstock.kernels.recurrent_state import StateRows


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, inputs: Tensor, rows: StateRows) -> Tensor:
    rows.check_values("causal_conv", len(x), len(inputs))
    out = torch.empty_like(x)
    native.library.causal_conv(
        DTYPES[x.dtype], x.data_ptr(), weight.data_ptr(), address(bias), len(weight), x.shape[1], inputs.data_ptr(),
        inputs.stride()[0], rows.slots.data_ptr(), rows.starts.data_ptr(), rows.counts.data_ptr(), len(rows.slots),
        out.data_ptr())
    return out
