"""Progress in loading: told to people by bars, and to the launcher by signs, which finds a load that hangs."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Never, TypeVar

from tqdm import tqdm

from penstock.system.signs import Sign

INTERVAL_SECONDS = 0.5

_T = TypeVar("_T")


class LoadProgress:
    """Tells of progress by bars on stderr if it `has_bars`, and to `signs_fd`, a pipe, if there is one."""

    def __init__(self, signs_fd: int | None = None, has_bars: bool = False) -> None:
        self._signs_fd = signs_fd
        self._has_bars = has_bars
        self._told_at = 0.0
        self._bar: tqdm[Never] | None = None

    def tell(self) -> None:
        """Tells the launcher that there is progress, but not more often than it looks."""
        now = time.monotonic()
        if self._signs_fd is not None and now - self._told_at >= INTERVAL_SECONDS:
            self._told_at = now
            with suppress(BrokenPipeError):  # the launcher is gone, which others notice
                os.write(self._signs_fd, Sign.ALIVE)

    def tell_ready(self) -> None:
        """Tells the launcher that steps can be run."""
        if self._signs_fd is not None:
            with suppress(BrokenPipeError):  # the launcher is gone
                os.write(self._signs_fd, Sign.READY)
            os.close(self._signs_fd)
            self._signs_fd = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Shows a bar of the tensors that are read while the block runs."""
        if not self._has_bars:
            yield
            return
        with tqdm(desc="Loading weights", unit="tensor", file=sys.stderr) as self._bar:
            yield
        self._bar = None

    def read(self, name: str, num_read: int, num_tensors: int) -> None:
        """Takes that a tensor was read, the `num_read`th of a checkpoint."""
        self.tell()
        if self._bar is not None:
            self._bar.total = num_tensors
            self._bar.update(num_read - self._bar.n)

    def each(self, items: Sequence[_T], doing: str, unit: str) -> Iterator[_T]:
        """Yields the items, and takes it that what is done with one takes long."""
        for item in tqdm(items, doing, unit=unit, file=sys.stderr, disable=not self._has_bars):
            self.tell()
            yield item
