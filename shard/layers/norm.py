"""RMS norm with its weight, which every rank holds whole."""

from torch import Tensor

from kernels.rms_norm import rms_norm


class Norm:
    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The norm of x + residual, and that sum: both [T, C]."""
        return rms_norm(x, self._weight, self._eps, residual)


class HeadNorm:
    """RMS norm of every head by itself, with one weight for all."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """weight: [D]"""
        self._norm = Norm(weight, eps)

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, H, D]: the same."""
        normed, _ = self._norm(x.contiguous().view(-1, x.shape[-1]))
        return normed.view(x.shape)
