"""The phases of a shard's start, from the start of its process until it listens."""

import os
import time
from pathlib import Path


class Phases:
    """Notes how long each phase took; `str` lists them. The first begins with the process, before Python runs, or now,
    if the process has rested."""

    def __init__(self, has_rested: bool = False) -> None:
        self._since = _now() if has_rested else _process_start()
        self._seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """Ends the phase that runs, and begins the next."""
        now = _now()
        self._seconds[name] = now - self._since
        self._since = now

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self._seconds.items())
        return f"{sum(self._seconds.values()):.2f} s: {phases}"


def _now() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _process_start() -> float:
    """Returns when this process began, by the clock of `_now`; now, where the system does not tell it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _now()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
