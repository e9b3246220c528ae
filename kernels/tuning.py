"""Finds which of a kernel's configurations is fastest on this GPU: `penstock tune` measures once, launches look it up.

A configuration is the constants that a kernel is launched with (tiles, warps, stages); in deterministic mode none of an
op's candidates changes a bit, which is checked as they are measured. What won is kept in one JSON file for each GPU's
name, {op: {key: configuration}}, in $XDG_CACHE_HOME/penstock/tuning; what won elsewhere, on a GPU of the same name,
comes with the package, in `tuned/`. Nothing is measured while requests are served.
"""

import errno
import functools
import json
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch
import triton
from torch import Tensor

from penstock.kernels import dispatch

Config = Mapping[str, int]

SHIPPED = Path(__file__).parent / "tuned"
MIN_GAIN = 0.02
"""The share by which a candidate must be faster than the guess: less is noise."""
MAX_RUNS = 20
MAX_SECONDS = 0.1
"""Of one candidate's runs, after those that warm up."""
FLUSHED_BYTES = 256 << 20
"""More than a GPU's caches hold: a step's weights come from memory."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """Holds the findings of `tune` for one key. Seconds are of one run."""

    key: str
    config: Config
    seconds: float
    default_seconds: float
    num_candidates: int
    is_saved: bool
    """Whether launches will find it: there may be no folder that can be written."""


@dataclass(frozen=True)
class _Trial:
    most: int | None = None
    is_timed: bool = True


_trial = _Trial()


@contextmanager
def trying(most: int | None, is_timed: bool = True) -> Iterator[None]:
    """Lets `tune` try at most so many candidates while the block runs. If they are not timed, each is only run once,
    so that it is compiled, and nothing is saved: another process, which times them, then finds what was compiled."""
    global _trial
    before, _trial = _trial, _Trial(most, is_timed)
    try:
        yield
    finally:
        _trial = before


def best(op: str, key: str, candidates: Sequence[Config]) -> Config:
    """Returns the candidate that was saved as the fastest; if none was, the one that comes with the package; if there
    is none, the first, which is the op's guess.

    A saved configuration that is no candidate, of another version or of another hand, is ignored with a warning.
    """
    found = _entry(_saved(), op, key)
    if found is not None and found not in candidates:
        _warn(f"{path()}: what it holds for {op} is not of this version; `penstock tune` measures again")
        return candidates[0]
    shipped = _entry(_shipped(), op, key)
    return found or (shipped if shipped in candidates else candidates[0])


def _entry(configurations: Mapping[str, Any], op: str, key: str) -> Any:
    of_op = configurations.get(op, {})
    return of_op.get(key) if isinstance(of_op, dict) else None


def tune(op: str, key: str, candidates: Sequence[Config], run: Callable[[Config], Tensor]) -> Outcome:
    """Measures all candidates, and saves the fastest. `run` launches the op with one, and returns its result.

    A candidate that needs more than the GPU has is left out; so is one that changes a bit, in deterministic mode.
    """
    expected = run(candidates[0])
    seconds: dict[int, float] = {}
    for number, config in enumerate(candidates[:_trial.most]):
        try:
            result = run(config)
        except triton.runtime.errors.OutOfResources:
            continue
        if dispatch.is_deterministic() and not torch.equal(result, expected):
            log.warning("%s, %s: %s changes bits and is left out", op, key, dict(config))
            continue
        del result
        if not _trial.is_timed:
            continue
        seconds[number] = _time(functools.partial(run, config), expected.device)
    if not _trial.is_timed:
        return Outcome(key, candidates[0], nan, nan, len(candidates), is_saved=False)
    fastest = min(seconds, key=lambda number: seconds[number])
    winner = fastest if seconds[fastest] < seconds[0] * (1 - MIN_GAIN) else 0
    is_saved = _is_saved(op, key, candidates[winner])
    return Outcome(key, candidates[winner], seconds[winner], seconds[0], len(candidates), is_saved)


def path() -> Path:
    """Returns the file in which this process's GPU has its configurations. Raises FileNotFoundError where the user has
    no home, as one of a container that no file names."""
    return _cache() / "penstock" / "tuning" / _file_name()


def _cache() -> Path:
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "the user has no home", "~/.cache") from None


def capability() -> int:
    """Returns the compute capability that kernels are compiled for, 90 for Hopper; 0 in the interpreter."""
    return 0 if dispatch.is_interpreted() else _capability(triton.runtime.driver.active)


@functools.cache
def _capability(driver: Any) -> int:
    return int(driver.get_current_target().arch)


def forget() -> None:
    """Forgets the file's content, so that the next question reads the file again."""
    _saved.cache_clear()
    _shipped.cache_clear()
    _warn.cache_clear()


def _gpu_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


def _file_name() -> str:
    return f"{_gpu_name().replace('/', '-')}.json"


@functools.cache
def _shipped() -> dict[str, Any]:
    """Reads the configurations that come with the package for this GPU, if there are any."""
    file = SHIPPED / _file_name()
    content: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return content


@functools.cache
def _saved() -> dict[str, Any]:
    try:
        content = json.loads(path().read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _warn(f"{path()}: {error}; nothing is tuned until `penstock tune` writes it anew")
        return {}
    if not isinstance(content, dict):
        _warn(f"{path()}: holds no object; nothing is tuned until `penstock tune` writes it anew")
        return {}
    return content


def _is_saved(op: str, key: str, config: Config) -> bool:
    """Writes a configuration to the file; tells whether it could, and says once why it could not."""
    try:
        _save(op, key, config)
    except OSError as error:
        _warn(f"What is measured cannot be kept: {error.strerror}: {error.filename or path().parent}. XDG_CACHE_HOME "
              "names another folder, to have penstock/tuning in")
        return False
    return True


def _save(op: str, key: str, config: Config) -> None:
    """Writes a configuration to the file, of which readers see the old state or the new one."""
    _saved.cache_clear()
    content, target = _saved(), path()
    entries = content.get(op)
    content[op] = {**(entries if isinstance(entries, dict) else {}), key: dict(config)}
    target.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=target.parent, prefix=f".{target.name}-", delete=False) as file:
        try:
            json.dump(content, file, indent=1, sort_keys=True)
            file.flush()
        except OSError:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(target)


@functools.cache
def _warn(sentence: str) -> None:
    log.warning(sentence)


def _time(run: Callable[[], object], device: torch.device) -> float:
    """Returns the median seconds of a run that finds nothing of its own in the caches."""
    measure = _time_on_gpu if device.type == "cuda" else _time_on_processor
    run()
    times: list[float] = []
    while len(times) < MAX_RUNS and sum(times) < MAX_SECONDS:
        times.append(measure(run))
    return statistics.median(times)


def _time_on_gpu(run: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda").zero_()  # takes longer than the launch
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


def _time_on_processor(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
