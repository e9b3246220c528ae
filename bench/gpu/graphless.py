"""The engine without CUDA graphs: what they are worth."""

from penstock.bench.gpu.engine import Measured
from penstock.bench.gpu.part import Cases, Context


def cases(context: Context) -> Cases:
    measured = Measured(context, base="engine", cuda_graphs=())
    yield "load", measured.load
    yield from measured.cases(context.scale.graphless_batches, ())
