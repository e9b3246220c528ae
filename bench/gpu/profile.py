"""When a device works and when it rests, as torch's profiler saw it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
Span = tuple[float, float]
"""Begin and end, in microseconds."""


@dataclass(frozen=True)
class Rests:
    busy_seconds: float                  # of a step
    share: float                         # of the time, in percent, that the device rests
    share_between: float                 # that it does between steps, which is where its longest rests are


def profile(work: Callable[[], object], num_steps: int) -> Rests:
    """Returns the rests in steps that `work` runs on a GPU. Raises RuntimeError if the profiler saw no work there."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in events if event.get("cat") in WORK]
    if not spans:
        raise RuntimeError("the profiler saw nothing on the device")
    return find_rests(spans, num_steps)


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
