"""The two ceilings: how fast the device moves bytes, and how fast it multiplies; and its clocks meanwhile."""

import functools
import math
import subprocess
from itertools import cycle, islice

import torch

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.timing import Call, median_seconds, synchronize
from penstock.kernels import dispatch

COPY, MATMUL = "device-to-device copy", "matmul"
LOAD_SECONDS = 1.5                       # of products, in which the clocks are looked at
COLUMNS = {"SM, MHz": "clocks.sm", "memory, MHz": "clocks.mem", "°C": "temperature.gpu", "W": "power.draw"}
REASONS = "clocks_event_reasons.active"
HELD_BACK = {0x1: "rest", 0x4: "power", 0x8: "hardware", 0x20: "heat", 0x40: "heat, by hardware", 0x80: "power brake"}
"""By the bits of REASONS."""
PATIENCE = 10.0                          # seconds


def cases(context: Context) -> Cases:
    yield "device", lambda: _device(context)
    yield "clocks at rest", lambda: context.record("clocks at rest", **clocks())
    yield COPY, lambda: _copy(context)
    yield MATMUL, lambda: _matmul(context)
    yield "clocks under load", lambda: _clocks_under_load(context)


def _device(context: Context) -> Record:
    versions = f"torch {torch.__version__}, kernels {dispatch.path()}"
    if dispatch.device().type != "cuda":
        return context.record("device", value=f"no GPU: the times mean nothing; {versions}")
    properties = torch.cuda.get_device_properties(0)
    return context.record("device", value=f"{properties.name}, {properties.multi_processor_count} multiprocessors, "
                          f"{properties.total_memory / 1e9:.1f} GB; {versions}")


def _copy(context: Context) -> Record:
    """Measures how many bytes a kernel reads and writes in a second. A plain copy, replayed
    from a graph, made 2.8 TB/s on an H200, on which kernels read 3.8."""
    source = torch.empty(context.scale.copy_bytes // 4, dtype=torch.int32, device=dispatch.device()).random_()
    target = torch.zeros_like(source)
    seconds = median_seconds([lambda: torch.neg(source, out=target)], context.scale.repeats)
    rate = 2 * source.nbytes / seconds
    return context.record(COPY, is_right=torch.equal(source, -target), value=rate / 1e12, unit="TB/s")


def _matmul(context: Context) -> Record:
    seconds = median_seconds(_products(context), context.scale.repeats)
    rate = 2 * context.scale.matmul_size**3 / seconds
    return context.record(MATMUL, value=rate / 1e12, unit=f"TFLOP/s, {context.scale.dtype_name}")


def _products(context: Context) -> list[Call]:
    size = context.scale.matmul_size
    sets = [torch.randn(2, size, size, device=dispatch.device()).to(context.scale.dtype) for _ in range(2)]
    out = torch.empty_like(sets[0][0])
    return [functools.partial(torch.mm, a, b, out=out) for a, b in sets]


def _clocks_under_load(context: Context) -> Record:
    """Looks at the clocks while the device multiplies: it is given more than it can do in that time."""
    calls = _products(context)
    number = 1
    if dispatch.device().type == "cuda":
        number = math.ceil(LOAD_SECONDS / median_seconds(calls, context.scale.repeats))
    for call in islice(cycle(calls), number):
        call()
    found = clocks()
    synchronize()
    return context.record("clocks under load", **found)


class Ceilings:
    """The ceilings that were measured: shares of them are NaN where they were not."""

    def __init__(self, context: Context) -> None:
        self.bytes_per_second = 1e12 * context.records.find("ceilings", COPY, "value")
        self.flops_per_second = 1e12 * context.records.find("ceilings", MATMUL, "value")

    def share_of_copy(self, num_bytes: float, seconds: float) -> float:
        """Returns the share of the copy's rate in percent, as all shares are."""
        return 100 * num_bytes / seconds / self.bytes_per_second

    def share_of_matmul(self, flops: float, seconds: float) -> float:
        return 100 * flops / seconds / self.flops_per_second


def clocks() -> dict[str, object]:
    """Returns the clocks by column; a note if the driver does not tell."""
    if not torch.cuda.is_available():
        return {"note": "no GPU has clocks here"}
    device = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    command = ["nvidia-smi", f"--id={device}", f"--query-gpu={','.join([*COLUMNS.values(), REASONS])}",
               "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return read(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"note": f"the driver does not tell: {error}"}


def read(line: str) -> dict[str, object]:
    """Returns the readings in a line of the driver's. Raises ValueError for one that is none."""
    *numbers, reasons = (cell.strip() for cell in line.split(","))
    found = int(reasons, 16)
    held_back = [name for bit, name in HELD_BACK.items() if found & bit]
    return {**dict(zip(COLUMNS, map(float, numbers), strict=True)), "held back by": ", ".join(held_back) or "nothing"}
