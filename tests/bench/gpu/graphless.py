"""The engine without CUDA graphs: what they are worth."""

from kernels import dispatch
from tests.bench.gpu.engine import Measured
from tests.bench.gpu.part import Cases, Context


def cases(context: Context) -> Cases:
    if dispatch.device().type != "cuda":
        yield "no graphs", lambda: context.record("no graphs", note="a processor has none to do without")
        return
    measured = Measured(context, base="engine", has_graphs=False)
    yield "load", measured.load
    yield from measured.cases(context.scale.graphless_batches, ())
