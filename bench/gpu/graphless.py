"""The engine without CUDA graphs: what they are worth."""

from penstock.bench.gpu.engine import Measured
from penstock.bench.gpu.part import Cases, Context
from penstock.kernels import dispatch


def cases(context: Context) -> Cases:
    if dispatch.device().type != "cuda":
        yield "no graphs", lambda: context.record("no graphs", note="a processor has none to do without")
        return
    measured = Measured(context, base="engine", has_graphs=False)
    yield "load", measured.load
    yield from measured.cases(context.scale.graphless_batches, ())
