"""How long a device takes: by events, and by replays of a graph, so that small kernels are not timed as launches."""

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from statistics import median

import torch

from penstock.kernels import dispatch

Call = Callable[[], object]
COLD_BYTES = 1 << 30                     # that calls which take turns read: many times a GPU's cache
QUICK_SECONDS = 1e-3                     # what takes longer hides its launch
LAUNCHES = 64                            # launches behind one another: a GPU holds a thousand kernels that wait


def synchronize() -> None:
    if dispatch.device().type == "cuda":
        torch.cuda.synchronize()


def copies(num_bytes: int) -> int:
    """Returns how many sets of inputs of this size must take turns so that none is found in a GPU's cache."""
    if dispatch.device().type != "cuda":
        return 1
    return min(64, max(1, COLD_BYTES // max(1, num_bytes)))


def median_seconds(calls: Sequence[Call], repeats: int) -> float:
    """Returns the median time of a call; all are timed together, on a GPU captured in a graph if they can be."""
    for call in (calls[0], *calls):
        call()
    synchronize()
    if dispatch.device().type != "cuda":
        return median(_wall(calls) for _ in range(repeats)) / len(calls)
    graph = _capture(calls)
    return median(_events([graph.replay] if graph else calls, repeats)) / len(calls)


def launch_seconds(calls: Sequence[Call], repeats: int) -> float:
    """Returns the median time that the host takes to send one call on its way, while the device is behind."""
    number = LAUNCHES if dispatch.device().type == "cuda" else 1
    found = []
    for _ in range(min(5, repeats)):
        synchronize()
        found.append(_wall(list(islice(cycle(calls), number))) / number)
    synchronize()
    return median(found)


def _wall(calls: Sequence[Call]) -> float:
    begin = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - begin


def _capture(calls: Sequence[Call]) -> "torch.cuda.CUDAGraph | None":
    """Returns the calls' graph; None if one of them waits for the device, which is then timed as it is launched."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for call in calls:
                call()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph


def _events(calls: Sequence[Call], repeats: int) -> list[float]:
    """Returns the seconds of all calls together, for each repeat."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats + 1)]
    for begin, end in pairs:
        begin.record()
        for call in calls:
            call()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs[1:]]
