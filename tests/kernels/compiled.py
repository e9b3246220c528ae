"""What the tests of compiled kernels share: memory that shows what was not written, threads, and how near is near."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from penstock.kernels import native
from tests.kernels.accuracy import relative_rms


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch.empty and empty_like give NaN, or a large number where there is none."""
    for name in ("empty", "empty_like"):
        original = getattr(torch, name)

        def poisoned(*args, original=original, **kwargs):
            out = original(*args, **kwargs)
            return out.fill_(torch.nan if out.is_floating_point() else torch.iinfo(out.dtype).max)

        monkeypatch.setattr(torch, name, poisoned)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """The ops use this many threads."""
    native.library.set_threads(count, None)
    try:
        yield
    finally:
        native.library.set_threads(1, None)


def assert_near(actual: Tensor, exact: Tensor) -> None:
    """`actual` is the float64 `exact` after some float32 arithmetic and one rounding to its dtype."""
    assert exact.dtype == torch.float64
    assert torch.isfinite(actual).all(), "not all was written"
    rounding = relative_rms(exact.to(actual.dtype), exact)
    assert relative_rms(actual, exact) <= 1.02 * rounding + 1.5e-7
