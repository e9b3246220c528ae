"""The causal convolution in Triton: a program for some channels of a sequence, over its tokens one by one."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.activation.gpu import activated
from penstock.kernels.recurrent_state import StateRows

BLOCK = 128


@triton.jit
def _causal_conv(x, weight, bias, inputs, out, slots, starts, counts, ends, channels, stride, WIDTH: tl.constexpr,
                 HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_channel = channel < channels
    count, is_running = tl.load(counts + row), tl.load(starts + row) > 0
    first = (tl.load(ends + row) - count).to(tl.int64)
    before = inputs + tl.load(slots + row).to(tl.int64) * stride + channel
    x += first * channels + channel
    out += first * channels + channel
    for token in range(count):
        total = tl.zeros([BLOCK], tl.float32)
        for j in tl.static_range(WIDTH):
            place = token + j - (WIDTH - 1)
            new = tl.load(x + place * channels, mask=is_channel & (place >= 0), other=0.0).to(tl.float32)
            old = tl.load(before + (place + WIDTH - 1) * channels, mask=is_channel & (place < 0) & is_running,
                          other=0.0).to(tl.float32)
            factor = tl.load(weight + j * channels + channel, mask=is_channel, other=0.0)
            total += factor * tl.where(place < 0, old, new)
        if HAS_BIAS:
            total += tl.load(bias + channel, mask=is_channel, other=0.0)
        tl.store(out + token * channels, activated(total, "silu").to(out.dtype.element_ty), mask=is_channel)
    for j in tl.static_range(WIDTH - 1):  # ascending: what is read lies behind what was written
        place = count + j - (WIDTH - 1)
        new = tl.load(x + place * channels, mask=is_channel & (place >= 0), other=0.0)
        old = tl.load(before + (count + j) * channels, mask=is_channel & (place < 0) & is_running, other=0.0)
        tl.store(before + j * channels, tl.where(place < 0, old, new), mask=is_channel)


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, inputs: Tensor, rows: StateRows) -> Tensor:
    out, channels = torch.empty_like(x), x.shape[1]
    if len(x):
        ends = rows.counts.cumsum(0, dtype=torch.int32)
        _causal_conv[(len(ends), triton.cdiv(channels, BLOCK))](
            x, weight, bias, inputs, out, rows.slots, rows.starts, rows.counts, ends, channels,
            inputs.stride(0), WIDTH=len(weight), HAS_BIAS=bias is not None, BLOCK=BLOCK)
    return out
