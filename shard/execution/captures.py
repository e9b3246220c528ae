"""Captures the steps of a shard's model and of its draft model, over the memory that they then keep."""

from penstock.kernels import dispatch
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.graphs import StepGraphs, new_pool
from penstock.shard.progress import LoadProgress


def new_graphs(executor: Executor) -> list[StepGraphs]:
    """Makes room for the steps that are to be captured, of the model and of the draft model."""
    memory = executor.memory
    own = StepGraphs.of(executor.model, memory.caches, memory.bounds, executor.config)
    return [own, *executor.drafter.new_graphs(executor.config)]


def capture(executor: Executor, progress: LoadProgress | None = None) -> None:
    """Capture steps over the memory as it is now, which is then to stay."""
    pool = new_pool(dispatch.device())
    own, *of_drafter = new_graphs(executor)
    own.capture(progress, pool)
    executor.memory.graphs = own
    for graphs in of_drafter:            # whose results are read before the model's graphs are replayed
        graphs.capture(progress, pool)
        executor.drafter.graphs = graphs
