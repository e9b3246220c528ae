"""The causal convolution in torch, in float64, sequence by sequence."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from penstock.kernels.recurrent_state import StateRows


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, inputs: Tensor, rows: StateRows) -> Tensor:
    out = torch.empty_like(x)
    width = len(weight)
    for slot, start, begin, end in rows.spans():
        before = inputs[slot] if start else torch.zeros_like(inputs[slot])
        seen = torch.cat([before, x[begin:end]])
        windows = torch.stack([seen[j:j + end - begin].double() for j in range(width)])
        sums = (windows * weight[:, None]).sum(dim=0)
        out[begin:end] = silu(sums if bias is None else sums + bias).to(x.dtype)
        inputs[slot] = seen[len(seen) - width + 1:]
    return out
