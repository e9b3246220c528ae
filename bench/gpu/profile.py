"""When a device works and when it rests, and at which kernel it is, as torch's profiler saw it."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from penstock.kernels import dispatch

WORK = {"cuda": {"kernel", "gpu_memcpy", "gpu_memset"}, "cpu": {"cpu_op"}}
"""Kinds of events that are a device's work. Those of a processor lie within one another, and show no more than that
the profiler runs."""
Span = tuple[float, float]
"""Begin and end, in microseconds."""


@dataclass(frozen=True)
class Rests:
    busy_seconds: float                  # of a step
    share: float                         # of the time, in percent, that the device rests
    share_between: float                 # that it does between steps, which is where its longest rests are


@dataclass(frozen=True)
class Kernel:
    """All kernels of a name, in a step."""

    name: str
    seconds: float
    launches: float


@dataclass(frozen=True)
class Profile:
    rests: Rests
    kernels: list[Kernel]                # the longest first


def profile(work: Callable[[], object], num_steps: int) -> Profile:
    """Returns the profile of the steps that `work` runs. Raises RuntimeError if the profiler saw nothing on the device.
    """
    device = dispatch.device().type
    activity = torch.profiler.ProfilerActivity.CUDA if device == "cuda" else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        work()
        if device == "cuda":
            torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") in WORK[device]]
    if not events:
        raise RuntimeError("the profiler saw nothing on the device")
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in events]
    return Profile(find_rests(spans, num_steps), by_name(events, num_steps))


def by_name(events: Iterable[dict[str, Any]], num_steps: int) -> list[Kernel]:
    """Returns the time of each kernel in a step, by name; forms of one template count as one."""
    durations: dict[str, list[float]] = defaultdict(list)
    for event in events:
        durations[short_name(event["name"])].append(event["dur"])
    kernels = [Kernel(name, 1e-6 * sum(own) / num_steps, len(own) / num_steps) for name, own in durations.items()]
    return sorted(kernels, key=lambda kernel: -kernel.seconds)


def short_name(name: str) -> str:
    """Returns a kernel's name without its result, arguments and the namespaces of torch."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "").removeprefix("at::native::")
    return re.sub(r"[<(].*", "", plain).strip() or name


def find_rests(spans: list[Span], num_steps: int) -> Rests:
    """Finds the rests between `num_steps` steps, one less than there are steps. Spans may overlap."""
    spans = sorted(spans)
    begin = busy_until = spans[0][0]
    rests = []
    for start, end in spans:
        if start > busy_until:
            rests.append(start - busy_until)
        busy_until = max(busy_until, end)
    total = busy_until - begin
    between = sorted(rests, reverse=True)[: num_steps - 1]
    return Rests(1e-6 * (total - sum(rests)) / num_steps, 100 * sum(rests) / total, 100 * sum(between) / total)
