"""One part of the benchmark in this process, or every n-th of its cases from the i-th on, without the first ones:
`python -m penstock.bench.gpu.part NAME SCALE SECONDS RECORDS I N FIRST`."""

import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from penstock.bench.gpu.records import Record, Records
from penstock.bench.gpu.scale import SCALES, Scale
from penstock.bench.gpu.timing import synchronize
from penstock.kernels import dispatch

Work = Callable[[], Record | list[Record] | None]
CASES_FAILED = 4
"""The exit status of a part whose cases were all run, and some failed."""
POISONED = 3
"""The exit status behind an error of the device: whatever this process asks of it from then on fails, too."""
LOAD = "load"
"""The case that others need, so that it is run again where they go on in another process."""


@dataclass(frozen=True)
class Part:
    """`module`.cases yields what there is to do, the most wanted first. `title` goes above the table, and `legend`,
    which says what its columns are."""

    name: str
    module: str
    title: str
    share: float                         # of the time
    is_deterministic: bool = False
    legend: str = ""
    workers: int = 1                     # processes at a time; several where nothing is timed, for they all compile
    needs_gpu: bool = False              # without one there is nothing to do
    is_check: bool = False               # one that does not end has failed; others only measure


OPS = ("% of copy: what the copy above takes for the bytes that the op has to move, in percent of its time; "
       "% of matmul: what the matmul above takes for its products. The larger of the two tells how near its floor is. "
       "host: to send one call on its way.")
ENGINE = ("% of floor: what the copy above takes for the weights and the KV of a decode step, or the matmul above for "
          "the products of a prompt, in percent of the time that passed. host: to send a step on its way.")
PRICE = "price %: what of the engine's tokens/s above is lost."

PARTS = {part.name: part for part in (
    Part("ceilings", "ceilings", "What the device can do", 0.05, legend="Bytes read and written, and products."),
    Part("compiling", "compile_engine", "Kernels of the engine, compiled", 0.06, workers=10, needs_gpu=True),
    Part("kernels", "checks", "Kernels against float64", 0.12, workers=10, is_check=True,
         legend="error: ‖out − ref‖ / ‖ref‖, the largest of all shapes, outputs filled with NaN before."),
    Part("equalities", "equalities", "Equal bits with --deterministic", 0.09, True, workers=8, is_check=True,
         legend="How many of the pairs of results that must be equal are."),
    Part("attention", "ops", "Ops", 0.1, legend=OPS),
    Part("fast candidates", "compile_candidates", "Candidates for linears of few rows, compiled", 0.03, workers=10,
         needs_gpu=True),
    Part("fast tuning", "tuning", "Linears of few rows: torch's or our own, as `penstock tune` finds", 0.05,
         needs_gpu=True),
    Part("engine", "engine", "Engine", 0.24, legend=f"{ENGINE} Decode: sequences × tokens of a prompt each."),
    Part("profile", "profiled", "Engine, kernel by kernel", 0.07,
         legend="A step of the device; idle: while steps run, of which the longest rests are those between steps."),
    Part("8-bit caches", "small_caches", "Engine with KV caches of 8 bits", 0.08, legend=ENGINE),
    Part("no graphs", "graphless", "Engine without CUDA graphs", 0.04, legend=PRICE, needs_gpu=True),
    Part("candidates", "compile_candidates", "Candidates for --deterministic, compiled", 0.06, True, workers=10,
         needs_gpu=True),
    Part("tuning", "tuning", "Configurations for --deterministic, as `penstock tune` finds them", 0.08, True,
         needs_gpu=True),
    Part("deterministic compiling", "compile_engine", "Kernels of the engine with --deterministic, compiled", 0.05,
         is_deterministic=True, workers=10, needs_gpu=True),
    Part("deterministic", "deterministic", "Ops and engine with --deterministic", 0.14, True, legend=PRICE),
    Part("engine equalities", "engine_equalities", "Equal bits of the engine with --deterministic", 0.06, True,
         is_check=True, legend="How many of the answers, tokens and logprobs, are those of each request alone."),
    Part("server", "served", "Server under load", 0.18,
         legend="Streams of as many tokens begin at once, over HTTP. ÷ the engine: beside its \"serve\" above."),
    Part("kill and resume", "resumed", "Server with --deterministic, of which a shard is killed", 0.1, is_check=True,
         legend="equal: streams whose tokens and logprobs are those of the undisturbed ones."),
    Part("transformers", "peer", "transformers, the same weights", 0.15,
         legend="Beside the engine's figures for as many sequences, above."),
    Part("ceilings again", "ceilings", "What the device can do at the end", 0.02,
         legend="As at the start, unless heat or power held the device back."),
)}


@dataclass(frozen=True)
class Context:
    """The context of a part's cases."""

    part: Part
    scale: Scale
    records: Records
    deadline: float                      # of time.monotonic()

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def record(self, name: str, is_right: bool | None = None, **values: object) -> Record:
        return Record(self.part.name, name, values, is_right)


class Place:
    """A file that says which case a process is at, for when it dies."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, number: int, name: str) -> None:
        self._path.write_text(f"{number} {name}")

    def read(self) -> tuple[int, str]:
        """Returns the number and the name of the case; -1 if none has begun."""
        number, _, name = self._path.read_text().partition(" ") if self._path.exists() else ("-1", "", "")
        return int(number), name


Cases = Generator[tuple[str, Work], None, None]


def run(context: Context, place: Place, index: int = 0, workers: int = 1, first: int = 0) -> int:
    """Runs the part's cases, without those before `first`; returns the exit status.

    A case that fails is a record of its own; what there is no time for is skipped.
    """
    status = 0
    with closing(importlib.import_module(f"penstock.bench.gpu.{context.part.module}").cases(context)) as cases:
        for number, (name, work) in enumerate(islice(cases, index, None, workers)):
            if number < first and name != LOAD:
                continue
            if context.seconds_left < 0:
                context.records.add(context.record(name, note="skipped: no time left"))
                continue
            place.note(number, name)
            status = _run_case(context, name, work) or status
            if status == POISONED:
                break
    return status


def _run_case(context: Context, name: str, work: Work) -> int:
    """Runs one case and adds what it finds; returns what the exit status is to be, 0 if all is well."""
    begin, status = time.monotonic(), 0
    try:
        found = work()
        synchronize()                    # an error of the device is told when somebody waits for it
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())[:160]
        found = context.record(name, is_right=False, note=f"{type(error).__name__}: {text}")
        status = POISONED if isinstance(error, torch.AcceleratorError) else CASES_FAILED
    for record in [found] if isinstance(found, Record) else found or []:
        context.records.add(record)
        status = status or CASES_FAILED * (record.is_right is False)
    print(f"{context.part.name}: {name}, {time.monotonic() - begin:.1f} s", flush=True)
    return status


def main() -> None:
    name, scale, seconds, path, index, workers, first = sys.argv[1:]
    part = PARTS[name]
    deadline = time.monotonic() + float(seconds)
    dispatch.configure(is_deterministic=part.is_deterministic)
    dispatch.set_threads(len(os.sched_getaffinity(0)))
    context = Context(part, SCALES[scale], Records(Path(path)), deadline)
    place = Place(Path(path).with_name(f"{name}-{index}.at"))
    sys.exit(run(context, place, int(index), int(workers), int(first)))


if __name__ == "__main__":
    main()
