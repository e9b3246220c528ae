"""The engine that keeps the bit contract, and what that costs."""

from penstock.bench.gpu.engine import Measured
from penstock.bench.gpu.ops import linear_cases
from penstock.bench.gpu.part import Cases, Context


def cases(context: Context) -> Cases:
    measured = Measured(context, base="engine")
    yield "load", measured.load
    yield from measured.cases(context.scale.deterministic_batches, (context.scale.deterministic_prefill,))
    yield from linear_cases(context)
