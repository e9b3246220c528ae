"""Every op of the GPU in all the ways that make a kernel of its own, on tensors whose contents never matter: what
tests/kernels/compile_only.py compiles, and what a memory checker runs on a GPU."""

from collections.abc import Callable

import torch

from kernels.rms_norm import gpu as rms_norm
from kernels.sample import _DTYPES as SAMPLE_DTYPES
from kernels.sample import Biases, History, SampleParameters
from kernels.sample import gpu as sample
from kernels.score import gpu as score
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


def scores() -> None:
    for num_rows, vocabulary, width in ((1, 8192, 0), (256, 128256, 0), (256, 128256, 5)):
        ids = torch.zeros(num_rows, dtype=torch.int64)
        score.score(torch.empty(num_rows, vocabulary), ids, ids, width)


def samples() -> None:
    for num_rows, vocabulary, width in ((1, 8192, 0), (1, 128256, 0), (256, 128256, 0), (256, 128256, 5)):
        columns = {name: torch.ones(num_rows, dtype=dtype) for name, dtype in SAMPLE_DTYPES.items()}
        ids, offsets = torch.ones(3, dtype=torch.int64), torch.full((num_rows + 1,), 3)
        offsets[0] = 0
        masks = torch.ones(2, vocabulary // 32, dtype=torch.int32)
        sample.sample(torch.empty(num_rows, vocabulary), SampleParameters(**columns), History(ids, offsets),
                      Biases(ids, ids.float(), offsets), masks, width)


LAUNCHES: tuple[Callable[[], None], ...] = (norms, activations, scores, samples)
