"""Captures decode steps once and replays them: a GPU is then given one order a step instead of hundreds.

A captured step reads its inputs where they lay when it was captured, and has as many rows as it had then. So a step is
padded to one of a few sizes, and its inputs are copied there. The padding's rows are sequences of one token, in a block
that no sequence has.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.execution.batch import StepInputs
from penstock.shard.execution.slots import Bounds
from penstock.shard.execution.step import Row
from penstock.shard.models.model import Model
from penstock.shard.progress import LoadProgress


class Captured(Protocol):
    """Replays a captured step of one size."""

    def replay(self) -> Tensor | None:
        """Returns the logits of the inputs that are in the buffers; None on ranks other than 0."""


class _Call:
    """Runs the step itself, where there are no graphs."""

    def __init__(self, run: Callable[[], Tensor | None]) -> None:
        self.replay = run


class _CudaGraph:
    def __init__(self, run: Callable[[], Tensor | None], pool: Any, stream: torch.cuda.Stream) -> None:
        """Runs the step once before it is captured, for kernels are compiled, and libraries look for memory, when they
        are first used."""
        self._graph = torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        # What other threads do, such as those that watch over the exchanges, is not to spoil it.
        with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self._logits = run()

    def replay(self) -> Tensor | None:
        self._graph.replay()
        return self._logits


class DecodeGraphs:
    """Captures and replays the steps of one model over its caches, which have one block and one state more than
    `bounds` says.

    All ranks of a group capture and replay alike. Logits hold until the next replay, of any size: they share memory.
    """

    def __init__(self, model: Model, caches: Sequence[LayerMemory], bounds: Bounds, sizes: Sequence[int]) -> None:
        """Makes room for the inputs of the largest of `sizes`; `capture` does the rest."""
        self.sizes = tuple(sorted(sizes))
        self._model = model
        self._caches = caches
        self._captured: dict[int, Captured] = {}
        num_rows, scratch = max(self.sizes, default=0), bounds.num_blocks
        device = caches[0].data.device
        width = -(-bounds.context_length // bounds.block_size)
        self._ids = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._positions = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._slot_mapping = torch.full((num_rows,), scratch * bounds.block_size, dtype=torch.int64, device=device)
        self._tables = torch.full((num_rows, width), scratch, dtype=torch.int32, device=device)
        self._starts = torch.zeros(num_rows, dtype=torch.int32, device=device)
        self._counts = torch.ones(num_rows, dtype=torch.int32, device=device)
        self._slots = None if bounds.num_states is None else torch.full(
            (num_rows,), bounds.num_states, dtype=torch.int32, device=device)
        self._rows = torch.arange(num_rows, device=device)

    def size_of(self, rows: Sequence[Row]) -> int | None:
        """Returns the size that a step with these rows is to be padded to; None if no captured step can run it.

        Every row of a captured step is one token, is sampled, and wants no prompt logprobs.
        """
        if any(row.count != 1 or not row.is_sampled or len(row.prompt_logprob_ids) for row in rows):
            return None
        return next((size for size in self.sizes if size >= len(rows)), None)

    @torch.inference_mode()
    def capture(self, progress: LoadProgress | None = None) -> None:
        """Capture every size, the largest first: the smaller ones then find room in its memory. The caches stay as they
        are."""
        is_cuda = self._ids.is_cuda
        pool = torch.cuda.graph_pool_handle() if is_cuda else None
        stream = torch.cuda.Stream() if is_cuda else None  # type: ignore[no-untyped-call]
        for size in (progress or LoadProgress()).each(self.sizes[::-1], "Capturing graphs", "graph"):
            def run(size: int = size) -> Tensor | None:
                return self._run(size)
            self._captured[size] = _CudaGraph(run, pool, stream) if stream else _Call(run)

    @torch.inference_mode()
    def replay(self, inputs: StepInputs, num_rows: int) -> Tensor | None:
        """Returns the float32 logits [num_rows, V] of a step that is padded to one of `sizes`, its own rows first; None
        on ranks other than 0."""
        size, width = inputs.metadata.tables.shape
        self._ids[:size].copy_(inputs.input_ids)
        self._positions[:size].copy_(inputs.metadata.positions)
        self._slot_mapping[:size].copy_(inputs.metadata.slot_mapping)
        self._tables[:size, :width].copy_(inputs.metadata.tables)
        self._starts[:size].copy_(inputs.metadata.starts)
        if self._slots is not None and inputs.metadata.slots is not None:
            self._slots[:size].copy_(inputs.metadata.slots)
        logits = self._captured[size].replay()
        return None if logits is None else logits[:num_rows]

    @torch.inference_mode()
    def run_largest(self) -> None:
        """Run the step of most rows without capturing it, to see what memory it takes."""
        self._run(self.sizes[-1])

    def _run(self, size: int) -> Tensor | None:
        metadata = AttentionMetadata(
            self._positions[:size], self._slot_mapping[:size], self._tables[:size], self._starts[:size],
            self._counts[:size], None if self._slots is None else self._slots[:size], is_decode=True)
        hidden = self._model.forward(self._ids[:size], metadata, self._caches)
        return self._model.logits(hidden, self._rows[:size])
