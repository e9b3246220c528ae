"""Multiplies x [M, K] by the transposed weight [N, K] where nobody asks for the bit contract: as torch does, or where
there are few rows and tuning found it faster, with our own kernel.

Few rows wait for the weight to come from memory. Our own kernel cuts K among as many programs as keep a GPU's
processors busy, and fetches the weight's first lines while the kernel before it ends.
"""

import bisect
import functools
import itertools
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels import tuning
from penstock.kernels.linear import fixed_order
from penstock.kernels.linear.choices import Rank, Shape, in_order, staged
from penstock.kernels.tuning import Config

OP = "linear of few rows"
ROWS = (1, 4, 16, 32, 64)
"""The numbers of rows that are measured. The winner serves all numbers from the one before up to its own."""
TORCHS: Config = {"PARTS": 0}
"""The configuration that stands for torch's matmul, and is taken where nothing was measured."""
PARTS = (1, 2, 4, 8)
MIN_INPUTS = 512             # of a part
STEP = 64                    # along K

# Where cuBLAS splits a sum it is to add the parts in float32.
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def matmul(x: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: torch.dtype,
           config: Config | None = None) -> Tensor:
    """Returns the product, rounded once. `config` is one of `choices`; without it the saved one is used, or torch's."""
    if config is None:
        is_tuned = x.dtype == weight.dtype != torch.float32 and 0 < len(x) <= ROWS[-1]
        config = _config(_shape(x, weight, out_dtype)) if is_tuned else TORCHS
    if not (parts := config["PARTS"]):
        return torchs(x, weight, bias, out_dtype)
    own = {name: value for name, value in config.items() if name != "PARTS"}
    return fixed_order.matmul(x, weight, parts, bias, out_dtype, own)


def torchs(x: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    """Multiplies as torch does. Rounds once, with the bias where that has the dtype of the rest."""
    is_one_dtype = x.dtype == weight.dtype == out_dtype and (bias is None or bias.dtype == out_dtype)
    if is_one_dtype and (x.is_cuda or out_dtype == torch.float32):
        return functional.linear(x, weight, bias)
    if x.is_cuda and x.dtype == weight.dtype != torch.float32:
        total = torch.mm(x, weight.t(), out_dtype=torch.float32)
    else:  # what torch cannot do without rounding to 16 bits in between
        total = torch.mm(x.float(), weight.float().t())
    return (total if bias is None else total + bias).to(out_dtype)


def tune(x: Tensor, weight: Tensor, out_dtype: torch.dtype) -> tuning.Outcome:
    """Finds and saves what is fastest for these shapes, of 16-bit numbers, and for all M that share its ROWS."""
    shape = _shape(x, weight, out_dtype)
    _config.cache_clear()
    return tuning.tune(OP, shape.key(), choices(shape),
                       lambda config: matmul(x, weight, None, out_dtype, config))


def choices(shape: Shape) -> tuple[Config, ...]:
    """Returns torch's matmul and the configurations of our own that may be faster, the best guess first."""
    found: list[tuple[Rank, Config]] = []
    for parts, block_m, block_n in itertools.product(PARTS, sorted({max(16, shape.rows), 64}), (32, 64, 128)):
        if parts == 1 or (shape.inputs % (parts * STEP) == 0 and shape.inputs // parts >= MIN_INPUTS):
            config = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SEGMENTS": 1, "IS_PERSISTENT": 0, "num_warps": 4}
            found += [(rank, {"PARTS": parts, **each}) for rank, each in staged(config, replace(shape, segments=parts))]
    return TORCHS, *in_order(found)


def _shape(x: Tensor, weight: Tensor, out_dtype: torch.dtype) -> Shape:
    return _of_few(fixed_order.shape_of(x, weight, 1, out_dtype), len(x))


@functools.cache
def _of_few(shape: Shape, rows: int) -> Shape:
    return replace(shape, rows=ROWS[bisect.bisect_left(ROWS, rows)])


@functools.cache
def _config(shape: Shape) -> Config:
    return tuning.best(OP, shape.key(), choices(shape))
