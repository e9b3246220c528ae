"""What the tests of all ops share: the dtypes, shapes that are no multiple of anything, and how near is near enough."""

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOKEN_COUNTS = (1, 3, 16, 17, 63, 100)


def assert_rounded_once(actual: Tensor, exact: Tensor) -> None:
    """`actual` is the float64 `exact` rounded to its dtype: at most half a unit in the last place away.

    And a hair: for sums in another order, and because torch takes float64 to 16 bits by way of float32.
    """
    assert exact.dtype == torch.float64
    info = torch.finfo(actual.dtype)
    _, exponent = torch.frexp(exact)
    unit = torch.ldexp(torch.full_like(exact, info.eps), exponent - 1).clamp(min=info.tiny * info.eps)
    error = (actual.double() - exact).abs() / unit
    hair = 1e-6 if actual.dtype == torch.float32 else 2.0**-24 / info.eps
    assert error.max() <= 0.5 + hair, f"off by {error.max():.3f} units in the last place"


def relative_rms(actual: Tensor, exact: Tensor) -> float:
    return float((actual.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt())
