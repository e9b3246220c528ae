"""Measures the energy that the machine takes while a shard's steps run, where the machine tells."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu, nvml, rapl

log = logging.getLogger(__name__)


class Counter(Protocol):
    """Counts the microjoules that a part of the machine has taken."""

    @property
    def most(self) -> int | None:
        """Returns the count at which it begins again at 0; None if it never does."""

    def read(self) -> int:
        """Returns the count. Raises OSError or ValueError if it can't be had."""


class Meter:
    """Measures from the begin to the end of steps, which may be on two threads. The counters are read at most once per
    `period`, in seconds. Of what the machine took between two readings, steps have the part of the time in which they
    ran."""

    def __init__(
        self, counters: Sequence[Counter], period: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises OSError or ValueError if a counter can't be read."""
        self._counters = counters
        self._period = period
        self._clock = clock
        self._change = threading.Lock()
        self._num_running = 0
        self._is_lost = False
        self._counts = [counter.read() for counter in counters]
        self._read_at = self._seen_at = clock()
        self._busy = 0.0
        self._untold = 0

    def begin(self) -> None:
        """Notes that a step begins."""
        with self._change:
            if not self._num_running:
                self._measure()
            self._num_running += 1

    def end(self) -> int | None:
        """Notes that a step has ended. Returns the microjoules of steps that were not told before; 0 if the counters
        were read too recently, so that a later step has them; None if they can't be read any more."""
        with self._change:
            self._measure()
            self._num_running -= 1
            told, self._untold = self._untold, 0
            return None if self._is_lost else told

    def _measure(self) -> None:
        """Counts the time since it was last called as busy if a step has run, and reads the counters if that is due."""
        now = self._clock()
        if self._num_running:
            self._busy += now - self._seen_at
        self._seen_at = now
        if self._is_lost or now - self._read_at < self._period:
            return
        try:
            counts = [counter.read() for counter in self._counters]
            used = sum(map(_used, self._counters, self._counts, counts))
        except (OSError, ValueError) as error:
            log.warning("the energy of steps is not measured any more: %s", error)
            self._is_lost = True
            return
        elapsed = now - self._read_at
        self._untold += round(used * (self._busy / elapsed if elapsed else bool(self._num_running)))
        self._counts, self._read_at, self._busy = counts, now, 0.0


def _used(counter: Counter, before: int, count: int) -> int:
    """Returns the microjoules from one count to the next. Raises ValueError if the counter has lost its count."""
    if count >= before:
        return count - before
    if counter.most is None:
        raise ValueError(f"a count fell from {before} to {count} microjoules")
    return count + counter.most - before


def meter_of(config: ShardConfig, powercap: Path = rapl.POWERCAP) -> Meter | None:
    """Returns the meter of the part of the machine that this rank stands for; None if the machine does not tell.

    Each rank that computes on a GPU measures that one. The processors and their memory are measured by the last rank of
    each machine, whose steps end last where there are stages; for the others there is nothing left to measure."""
    try:
        if gpu.is_used():
            return Meter(nvml.counters(config.local_rank), nvml.PERIOD)
        is_last = config.local_rank == config.num_local - 1
        counters = rapl.counters(powercap)
        return Meter(counters if is_last else (), rapl.PERIOD) if counters else None
    except (OSError, ValueError) as error:
        log.info("the energy of steps is not measured: %s", error)
        return None
