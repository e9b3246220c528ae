"""Progress in loading: told to people by bars or in the log, and to the launcher by signs, which finds a load that
hangs."""

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Never, TypeVar

from tqdm import tqdm

from penstock.system.signs import Sign

INTERVAL_SECONDS = 0.5
LOG_SECONDS = 10.0
"""How often the log tells of progress where there are no bars."""

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class LoadProgress:
    """Tells of progress to `signs_fd`, a pipe, if there is one, and if it `is_shown` also by bars on stderr or, if it
    has none (`has_bars`), every 10 seconds in the log."""

    def __init__(
        self, signs_fd: int | None = None, is_shown: bool = False, has_bars: bool = False, may_rest: bool = False
    ) -> None:
        """may_rest: whether there are signs to be given once steps can be run"""
        self._signs_fd = signs_fd
        self._may_rest = may_rest
        self._is_shown = is_shown
        self._has_bars = is_shown and has_bars
        self._told_at = 0.0
        self._logged_at = time.monotonic()
        self._bar: tqdm[Never] | None = None

    def tell(self) -> None:
        """Tells the launcher that there is progress, but not more often than it looks."""
        now = time.monotonic()
        if self._signs_fd is not None and now - self._told_at >= INTERVAL_SECONDS:
            self._told_at = now
            self._sign(Sign.ALIVE)

    def tell_ready(self) -> None:
        """Tells the launcher that steps can be run."""
        self._sign(Sign.READY)
        if self._signs_fd is not None and not self._may_rest:
            os.close(self._signs_fd)
            self._signs_fd = None

    def tell_resting(self) -> None:
        """Tells the launcher that no memory is held but that of the weights."""
        self._sign(Sign.RESTING)

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
        self._log("Loading weights", num_read, num_tensors, "tensor")
        if self._bar is not None:
            self._bar.total = num_tensors
            self._bar.update(num_read - self._bar.n)

    def each(self, items: Sequence[_T], doing: str, unit: str) -> Iterator[_T]:
        """Yields the items, and takes it that what is done with one takes long."""
        for index, item in enumerate(tqdm(items, doing, unit=unit, file=sys.stderr, disable=not self._has_bars)):
            self.tell()
            self._log(doing, index, len(items), unit)
            yield item

    def _sign(self, sign: Sign) -> None:
        if self._signs_fd is not None:
            with suppress(BrokenPipeError):  # the launcher is gone, which others notice
                os.write(self._signs_fd, sign)

    def _log(self, doing: str, num_done: int, number: int, unit: str) -> None:
        now = time.monotonic()
        if self._is_shown and not self._has_bars and now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.info("%s: %d of %d %ss", doing, num_done, number, unit)
