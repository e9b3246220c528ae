"""The engine without CUDA graphs: what they are worth."""

from tests.bench.gpu.engine import Measured
from tests.bench.gpu.part import Cases, Context
from tests.bench.gpu.runner import can_do_without_graphs


def cases(context: Context) -> Cases:
    if not can_do_without_graphs():
        yield "no graphs", lambda: context.record("no graphs", note="this shard has no CUDA graphs to do without")
        return
    measured = Measured(context, base="engine", has_graphs=False)
    yield "load", measured.load
    yield from measured.cases(context.scale.graphless_batches, ())
