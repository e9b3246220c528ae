"""The causal convolution in front of a recurrent layer: each channel by itself, over the last W tokens, then SiLU."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.causal_conv import reference
from penstock.kernels.checks import FLOATS, check_axes, check_rows, check_tensor
from penstock.kernels.recurrent_state import StateRows

_causal_conv = dispatch.choose(reference.causal_conv)


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, inputs: Tensor, rows: StateRows) -> Tensor:
    """Returns silu(Σ weight[j] * x[t - W + 1 + j] + bias) over ascending j, [T, C] in the dtype of x.

    x       [T, C]         float32, bfloat16 or float16
    weight  [W, C]         float32, W from 2 to 16
    bias    [C]            float32
    inputs  [N, W - 1, C]  in the dtype of x: what came before the tokens of each slot's sequence, and afterwards their
                           last; before position 0 are zeros; slots may lie apart

    The bits of a token do not depend on how its sequence is cut into steps. Raises ValueError for shapes or dtypes that
    do not fit together, and on a processor for rows that do not.
    """
    op = "causal_conv"
    check_axes(op, "x", x, "T, C")
    check_axes(op, "weight", weight, "W, C")
    width, channels = len(weight), x.shape[1]
    if not 2 <= width <= 16:
        raise ValueError(f"{op}: weight {list(weight.shape)} reads {width} tokens, expected 2 to 16")
    check_tensor(op, "x", x, x.shape, *FLOATS)
    check_tensor(op, "weight", weight, (width, channels), torch.float32)
    if bias is not None:
        check_tensor(op, "bias", bias, (channels,), torch.float32)
    check_rows(op, "inputs", inputs, (len(inputs), width - 1, channels), x.dtype)
    rows.check(op)
    return _causal_conv(x, weight, bias, inputs, rows)
