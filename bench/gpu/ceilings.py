"""The two ceilings: how fast the device moves bytes, and how fast it multiplies."""

import torch

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.timing import median_seconds
from penstock.kernels import dispatch

COPY, MATMUL = "device-to-device copy", "matmul"


def cases(context: Context) -> Cases:
    yield "device", lambda: _device(context)
    yield COPY, lambda: _copy(context)
    yield MATMUL, lambda: _matmul(context)


def _device(context: Context) -> Record:
    versions = f"torch {torch.__version__}, kernels {dispatch.path()}"
    if dispatch.device().type != "cuda":
        return context.record("device", value=f"no GPU: the times mean nothing; {versions}")
    properties = torch.cuda.get_device_properties(0)
    return context.record("device", value=f"{properties.name}, {properties.multi_processor_count} multiprocessors, "
                          f"{properties.total_memory / 1e9:.1f} GB; {versions}")


def _copy(context: Context) -> Record:
    """Measures how many bytes are read and written in a second."""
    source = torch.empty(context.scale.copy_bytes // 4, dtype=torch.int32, device=dispatch.device()).random_()
    target = torch.zeros_like(source)
    seconds = median_seconds([lambda: target.copy_(source)], context.scale.repeats)
    rate = 2 * source.nbytes / seconds
    return context.record(COPY, is_right=torch.equal(source, target), value=rate / 1e12, unit="TB/s")


def _matmul(context: Context) -> Record:
    size = context.scale.matmul_size
    sets = [torch.randn(2, size, size, device=dispatch.device()).to(context.scale.dtype) for _ in range(2)]
    out = torch.empty_like(sets[0][0])
    calls = [lambda a=a, b=b: torch.mm(a, b, out=out) for a, b in sets]
    seconds = median_seconds(calls, context.scale.repeats)
    return context.record(MATMUL, value=2 * size**3 / seconds / 1e12, unit=f"TFLOP/s, {context.scale.dtype_name}")


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
