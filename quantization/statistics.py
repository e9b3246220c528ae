"""The statistics of a linear's inputs over the calibration texts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight
from penstock.shard.weights.dense import Dense
from penstock.shard.weights.format import LinearPart

OUTLIER = 6.0                            # an input that large is an outlier to LLM.int8() (Dettmers et al. 2022)


@dataclass
class Statistics:
    """Sums over T inputs x [K]."""

    hessian: Tensor                      # float32 [K, K], the sum of x xT
    magnitudes: Tensor                   # float32 [K], the sum of |x|
    largest: Tensor                      # float32 [K], the largest |x|
    count: int = 0                       # T

    @classmethod
    def empty(cls, inputs: int) -> "Statistics":
        return cls(torch.zeros(inputs, inputs), torch.zeros(inputs), torch.zeros(inputs))

    def add(self, x: Tensor) -> None:
        """Counts x [T, K]."""
        x = x.float()
        self.hessian.addmm_(x.T, x)
        self.magnitudes += x.abs().sum(0)
        self.largest = torch.maximum(self.largest, x.abs().amax(0))
        self.count += len(x)

    @property
    def num_outliers(self) -> int:
        return int((self.largest >= OUTLIER).sum())

    def error(self, weight: Tensor, other: Tensor) -> float:
        """Returns the squared error of the outputs over all texts if `other` [N, K] stands for `weight`, as a part of
        the squared outputs."""
        difference = weight - other
        wanted = float((weight @ self.hessian * weight).sum())
        return float((difference @ self.hessian * difference).sum()) / wanted if wanted else 0.0


@dataclass(frozen=True, slots=True)
class WatchedWeight(PackedWeight):
    """A weight that counts what it is multiplied with."""

    inner: PackedWeight
    statistics: Statistics = field(repr=False)

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        self.statistics.add(x)
        return self.inner.multiply(x, bias, out_dtype)

    def apart(self, x: Tensor) -> Tensor:
        self.statistics.add(x)
        return self.inner.apart(x)

    def rows(self, ids: Tensor) -> Tensor:
        return self.inner.rows(ids)


class Watching(Dense):
    """Plain weights that count what they are multiplied with."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.statistics = Statistics.empty(inputs)

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        inner = super().pack(linears, parts, segments, dtype)
        return WatchedWeight(inner.out_features, inner.in_features, segments, dtype, inner, self.statistics)
