"""Low-rank adapters (LoRA, Hu et al. 2021): what each row's own adapter adds to the product of a linear, s · B (A x).

The numerics, which are the same for a row whatever rows are beside it, whatever threads there are, and on any number of
ranks that divides the segments of a row-parallel sum:

    A, B     in the model's dtype
    A x      is summed in float32 over ascending k, each segment by itself; the segments meet in the tree of `linear`
    s A x    is one multiplication in float32
    B (...)  is summed in float32 over ascending ranks of the adapter, from 0
    delta    is added in float32 to the base's product, before the bias and the rounding

A row without an adapter, or whose adapter has nothing for a linear, has the delta -0: it changes no bit of a sum.
"""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.lora import reference
from penstock.kernels.lora.adapter import Adapter, LoraWeight, Part, pack_adapter, packed_bytes
from penstock.kernels.lora.rows import AdapterRows

__all__ = ["Adapter", "AdapterRows", "LoraWeight", "Part", "expand", "pack_adapter", "packed_bytes", "shrink"]


_shrink = dispatch.choose(reference.shrink)
_expand = dispatch.choose(reference.expand)


def shrink(x: Tensor, rows: AdapterRows, site: int) -> Tensor:
    """Multiplies each row of x [T, K] by A of its own adapter: float32 [T, rows.rank(site)].

    x     float32, bfloat16 or float16
    site  the number of the linear in the adapters

    A row ends in zeros where its adapter has a lower rank than others, and has nothing else without one. Where a weight
    has a part of the inputs' segments, the sums of ranks add up to the whole, as those of `linear` do. Raises
    ValueError for shapes or dtypes that do not fit together.
    """
    check_axes("shrink", "x", x, "T, K")
    check_tensor("shrink", "x", x, (len(rows.groups), x.shape[1]), *FLOATS)
    for weight in rows.weights(site):
        if weight is not None and weight.in_features != x.shape[1]:
            raise ValueError(f"shrink: x has {x.shape[1]} inputs, an adapter's weight at site {site} "
                             f"{weight.in_features}")
    return _shrink(x, rows, site)


def expand(shrunk: Tensor, rows: AdapterRows, site: int, out_features: int) -> Tensor:
    """Scales the results of `shrink`, float32 [T, R], and multiplies each row by B of the row's own adapter: float32
    [T, out_features], the deltas. Raises ValueError for shapes or dtypes that do not fit together."""
    check_tensor("expand", "shrunk", shrunk, (len(rows.groups), rows.rank(site)), torch.float32)
    for weight in rows.weights(site):
        if weight is not None and weight.out_features != out_features:
            raise ValueError(f"expand: expected {weight.out_features} outputs for site {site}, got {out_features}")
    return _expand(shrunk, rows, site, out_features)
