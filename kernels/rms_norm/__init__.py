"""Root mean square layer normalisation (Zhang and Sennrich 2019), with the residual sum in front of it."""

from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.rms_norm import reference

_rms_norm = dispatch.choose(reference.rms_norm)


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (s / sqrt(mean(s²) + eps) * weight, s) with s = x + residual rounded to the dtype of x, or s = x itself.

    x, residual  [T, C]  float32, bfloat16 or float16, the same
    weight       [C]     float32, bfloat16 or float16

    Both results are [T, C] in the dtype of x. Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "rms_norm"
    check_axes(op, "x", x, "T, C")
    check_tensor(op, "x", x, x.shape, *FLOATS)
    check_tensor(op, "weight", weight, (x.shape[1],), *FLOATS)
    if residual is not None:
        check_tensor(op, "residual", residual, x.shape, x.dtype)
    return _rms_norm(x, weight, eps, residual)
