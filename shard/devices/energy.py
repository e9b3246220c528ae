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
    def most(self) -> int:
        """Returns the count at which it begins again at 0."""

    def read(self) -> int:
        """Returns the count. Raises OSError or ValueError if it can't be had."""


class Meter:
    """Measures from the begin to the end of steps, which may be on two threads. The counters are read at most once per
    `period`, in seconds: what the machine takes between a step and one that begins sooner after it counts for the later
    one, and what it takes for longer while no step runs, for none."""

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
        self._read_at = clock()

    def begin(self) -> None:
        """Notes that a step begins."""
        with self._change:
            if not self._num_running:
                self._used()
            self._num_running += 1

    def end(self) -> int | None:
        """Notes that a step has ended. Returns the microjoules since the counters were last read, which may be before
        it began; 0 if that is too recent, so that a later step has them; None if they can't be read any more."""
        with self._change:
            self._num_running -= 1
            return self._used()

    def _used(self) -> int | None:
        if self._is_lost:
            return None
        if self._clock() - self._read_at < self._period:
            return 0
        try:
            counts = [counter.read() for counter in self._counters]
        except (OSError, ValueError) as error:
            log.warning("the energy of steps is not measured any more: %s", error)
            self._is_lost = True
            return None
        used = sum(count - before if count >= before else count + counter.most - before
                   for counter, count, before in zip(self._counters, counts, self._counts, strict=True))
        self._counts, self._read_at = counts, self._clock()
        return used


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
