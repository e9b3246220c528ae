"""Every op of the GPU in all the ways that make a kernel of its own, on tensors whose contents never matter: what
tests/kernels/compile_only.py compiles, and what a memory checker runs on a GPU: `python -m tests.kernels.launches`."""

from collections.abc import Callable

import torch

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


LAUNCHES: tuple[Callable[[], None], ...] = (norms, activations)


def main() -> None:
    torch.set_default_device("cuda")
    for launch in LAUNCHES:
        launch()
        torch.cuda.synchronize()
        print(f"{launch.__name__}: ran", flush=True)


if __name__ == "__main__":
    main()
