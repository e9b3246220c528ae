"""Layer normalisation (Ba et al. 2016), with the residual sum in front of it."""

from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.layer_norm import reference

_layer_norm = dispatch.choose(reference.layer_norm)


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns ((s - mean(s)) / sqrt(var(s) + eps) * weight + bias, s) with s = x + residual rounded to the dtype of x,
    or s = x itself.

    x, residual   [T, C]  float32, bfloat16 or float16, the same
    weight, bias  [G, C]  float32, bfloat16 or float16, the same; row t has those of t % G, G divides T

    Both results are [T, C] in the dtype of x. Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "layer_norm"
    check_axes(op, "x", x, "T, C")
    check_axes(op, "weight", weight, "G, C")
    check_tensor(op, "x", x, x.shape, *FLOATS)
    check_tensor(op, "weight", weight, (len(weight), x.shape[1]), *FLOATS)
    if not len(weight) or len(x) % len(weight):
        raise ValueError(f"{op}: weight {list(weight.shape)}: its rows must divide those of x {list(x.shape)}")
    if bias is not None:
        check_tensor(op, "bias", bias, weight.shape, weight.dtype)
    if residual is not None:
        check_tensor(op, "residual", residual, x.shape, x.dtype)
    return _layer_norm(x, weight, bias, eps, residual)
