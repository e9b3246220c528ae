"""One part of the benchmark in this process, or every n-th of its cases from the i-th on:
`python -m penstock.bench.gpu.part NAME SCALE SECONDS RECORDS I N`."""

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

from penstock.bench.gpu.records import Record, Records
from penstock.bench.gpu.scale import SCALES, Scale
from penstock.bench.gpu.timing import synchronize
from penstock.kernels import dispatch

Work = Callable[[], Record | list[Record] | None]
CASES_FAILED = 4
"""The exit status of a part whose cases were all run, and some failed."""


@dataclass(frozen=True)
class Part:
    """`entry`, a module's function, yields the cases, the most wanted first. `title` goes above the table, and
    `legend`, which says what its columns are."""

    name: str
    entry: str
    title: str
    share: float                         # of the time
    is_deterministic: bool = False
    legend: str = ""
    workers: int = 1                     # processes at a time; several where nothing is timed, for they all compile
    needs_gpu: bool = False              # without one there is nothing to do


OPS = ("% of copy: what the copy above takes for the bytes that the op has to move, in percent of its time; "
       "% of matmul: what the matmul above takes for its products. The larger of the two tells how near its floor is. "
       "host: to send one call on its way.")
ENGINE = ("% of floor: what the copy above takes for the weights and the KV of a decode step, or the matmul above for "
          "the products of a prompt, in percent of the time that passed. host: to send a step on its way.")
PRICE = "price %: what of the engine's tokens/s above is lost."

PARTS = {part.name: part for part in (
    Part("ceilings", "ceilings.cases", "What the device can do", 0.05, legend="Bytes read and written, and products."),
    Part("compiling", "compiling.engine_cases", "Kernels of the engine, compiled", 0.06, workers=10, needs_gpu=True),
    Part("attention", "ops.cases", "Ops", 0.1, legend=OPS),
    Part("fast candidates", "compiling.candidate_cases", "Candidates for linears of few rows, compiled", 0.03,
         workers=10, needs_gpu=True),
    Part("fast tuning", "compiling.tuning_cases", "Linears of few rows: torch's or our own, as `penstock tune` finds",
         0.05, needs_gpu=True),
    Part("engine", "engine.cases", "Engine", 0.24, legend=f"{ENGINE} Decode: sequences × tokens of a prompt each."),
    Part("profile", "engine.profile_cases", "Engine, kernel by kernel", 0.07,
         legend="A step of the device; idle: while steps run, of which the longest rests are those between steps."),
    Part("8-bit caches", "engine.small_cache_cases", "Engine with KV caches of 8 bits", 0.08, legend=ENGINE),
    Part("no graphs", "engine.graphless_cases", "Engine without CUDA graphs", 0.04, legend=PRICE, needs_gpu=True),
    Part("candidates", "compiling.candidate_cases", "Candidates for --deterministic, compiled", 0.06, True, workers=10,
         needs_gpu=True),
    Part("tuning", "compiling.tuning_cases", "Configurations for --deterministic, as `penstock tune` finds them", 0.08,
         True, needs_gpu=True),
    Part("deterministic compiling", "compiling.engine_cases", "Kernels of the engine with --deterministic, compiled",
         0.05, is_deterministic=True, workers=10, needs_gpu=True),
    Part("deterministic", "engine.deterministic_cases", "Ops and engine with --deterministic", 0.14, True,
         legend=PRICE),
    Part("server", "served.cases", "Server under load", 0.18,
         legend="Streams of as many tokens begin at once, over HTTP. ÷ the engine: beside its \"serve\" above."),
    Part("transformers", "peer.cases", "transformers, the same weights", 0.15,
         legend="Beside the engine's figures for as many sequences, above."),
    Part("ceilings again", "ceilings.cases", "What the device can do at the end", 0.02,
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


Cases = Generator[tuple[str, Work], None, None]


def run(context: Context, index: int = 0, workers: int = 1) -> int:
    """Runs the part's cases; returns the exit status.

    A case that fails is a record of its own; what there is no time for is skipped.
    """
    module, _, function = context.part.entry.partition(".")
    status = 0
    with closing(getattr(importlib.import_module(f"penstock.bench.gpu.{module}"), function)(context)) as cases:
        for name, work in islice(cases, index, None, workers):
            if context.seconds_left < 0:
                context.records.add(context.record(name, note="skipped: no time left"))
            else:
                status = _run_case(context, name, work) or status
    return status


def _run_case(context: Context, name: str, work: Work) -> int:
    """Runs one case and adds what it finds; returns what the exit status is to be, 0 if all is well."""
    print(f"{context.part.name}: {name}", flush=True)
    try:
        found = work()
        synchronize()                    # an error of the device is told when somebody waits for it
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())[:160]
        found = context.record(name, is_right=False, note=f"{type(error).__name__}: {text}")
    records = [found] if isinstance(found, Record) else found or []
    for record in records:
        context.records.add(record)
    return CASES_FAILED * any(record.is_right is False for record in records)


def main() -> None:
    name, scale, seconds, path, index, workers = sys.argv[1:]
    deadline = time.monotonic() + float(seconds)
    dispatch.configure(is_deterministic=PARTS[name].is_deterministic)
    dispatch.set_threads(len(os.sched_getaffinity(0)))
    sys.exit(run(Context(PARTS[name], SCALES[scale], Records(Path(path)), deadline), int(index), int(workers)))


if __name__ == "__main__":
    main()
