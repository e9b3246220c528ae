"""Every op of the GPU in all the ways that make a kernel of its own, on tensors whose contents never matter: what
tests/kernels/compile_only.py compiles, and what a memory checker runs on a GPU."""

from collections.abc import Callable

import torch

from kernels.linear import fixed_order
from kernels.rms_norm import gpu as rms_norm
from kernels.silu_mul import gpu as silu_mul
from tests.kernels.accuracy import DTYPES


def norms() -> None:
    for dtype in DTYPES:
        for width in (80, 4096, 16384):
            x = torch.empty(3, width, dtype=dtype)
            rms_norm.rms_norm(x, x[0], 1e-5, None)
            rms_norm.rms_norm(x, x[0], 1e-5, x)


def activations() -> None:
    for dtype in DTYPES:
        silu_mul.silu_mul(torch.empty(3, 2 * 14336, dtype=dtype))


def linears() -> None:
    """Of Llama 8B's shapes the narrow one and the wide one, with one segment and with eight."""
    for dtype in DTYPES:
        for inputs, outputs, segments in ((4096, 6144, 1), (14336, 4096, 8), (4096, 28672, 1)):
            weight, bias = torch.empty(outputs, inputs, dtype=dtype), torch.empty(outputs, dtype=dtype)
            for num_tokens in (1, 128, 4096):
                x = torch.empty(num_tokens, inputs, dtype=dtype)
                fixed_order.matmul(x, weight, segments, None, dtype)
        fixed_order.matmul(x, weight, 1, bias, torch.float32)


LAUNCHES: tuple[Callable[[], None], ...] = (norms, activations, linears)
