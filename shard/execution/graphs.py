"""Captures steps once and replays them: a GPU is then given one order a step instead of hundreds.

A captured step reads its inputs where they lay when it was captured, and has as many tokens and rows as it had then. So
a step is padded to one of a few sizes, and its inputs are copied there. No launch depends on anything else of a step:
programs read on the device where rows begin and end. So one captured step serves all steps of its size, whatever part
of it are chunks of prompts, decode rows and guesses to be verified.

There are two kinds. Decode steps have one token in every row, after which one is sampled: their logits are captured,
too. Of other steps the blocks alone are, and what makes logits of some of the tokens is launched behind them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from penstock.contract.row import Row
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.config import ShardConfig
from penstock.shard.execution import batch
from penstock.shard.execution.batch import Padding
from penstock.shard.execution.slots import Bounds
from penstock.shard.models.model import Hidden, Model
from penstock.shard.progress import LoadProgress

OF_TOKENS = ("ids", "positions", "slot_mapping")
OF_ROWS = ("tables", "starts", "counts")

Result = TypeVar("Result", covariant=True)


class Captured(Protocol[Result]):
    """Replays a captured step of one size."""

    def replay(self) -> Result:
        """Returns the results for the inputs in the buffers."""


class _Call(Generic[Result]):
    """Runs the step itself, where there are no graphs."""

    def __init__(self, run: Callable[[], Result]) -> None:
        run()
        self.replay = run


class _CudaGraph(Generic[Result]):
    def __init__(self, run: Callable[[], Result], pool: Any, stream: torch.cuda.Stream) -> None:
        """Runs the step once before it is captured, for kernels are compiled, and libraries look for memory, when they
        are first used."""
        self._graph = torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        # What other threads do, such as those that watch over the exchanges, is not to spoil it.
        with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self._result = run()

    def replay(self) -> Result:
        self._graph.replay()
        return self._result


class StepGraphs:
    """Captures and replays the steps of one model over its caches, which have one block and one state more than
    `bounds` says.

    All ranks of a group capture and replay alike. Results hold until the next replay, of any size: they share memory.
    """

    def __init__(
        self, model: Model, caches: Sequence[LayerMemory], bounds: Bounds, decode_sizes: Sequence[int],
        mixed_sizes: Sequence[int] = (), max_rows: int = 0,
    ) -> None:
        """Makes room for the inputs of the largest step; `capture` does the rest.

        decode_sizes  of decode steps, in rows
        mixed_sizes   of other steps, in tokens; none is captured of more than a sequence may have
        max_rows      of a step whose tokens are more than that, without the row that pads it
        """
        scratch = bounds.num_blocks, bounds.num_states or 0
        self.paddings = (*(Padding(size, size, True, *scratch) for size in sorted(decode_sizes)),
                         *(Padding(size, min(size, max_rows + 1), False, *scratch) for size in sorted(mixed_sizes)
                           if size <= bounds.context_length))
        self._model = model
        self._caches = caches
        self._bounds = bounds
        self._decode: dict[Padding, Captured[Tensor | None]] = {}
        self._mixed: dict[Padding, Captured[Hidden]] = {}
        self._device = caches[0].data.device
        self._room = self._make_room()
        self._rows = torch.arange(max(decode_sizes, default=0), device=self._device)

    @classmethod
    def of(cls, model: Model, caches: Sequence[LayerMemory], bounds: Bounds, config: ShardConfig) -> "StepGraphs":
        """Makes room for the steps that the settings ask for; none of a model that cannot be captured."""
        sizes = (config.graph_sizes, config.mixed_graph_sizes) if model.is_capturable else ((), ())
        return cls(model, caches, bounds, *sizes, config.max_step_rows)

    def padding_of(self, rows: Sequence[Row]) -> Padding | None:
        """Returns the padding of a step with these rows; None if no captured step can run it.

        No row of a captured decode step wants prompt logprobs.
        """
        is_decode = all(row.num_inputs == 1 and row.is_sampled and not len(row.prompt_logprob_ids) for row in rows)
        return self.padding_for(sum(row.num_inputs for row in rows), len(rows), is_decode)

    def padding_for(self, num_tokens: int, num_rows: int, is_decode: bool = False) -> Padding | None:
        """Returns the padding of a step of this size; None if no captured step can run it."""
        return next((padding for padding in self.paddings
                     if padding.takes(num_tokens, num_rows) and (is_decode or not padding.is_decode)), None)

    @torch.inference_mode()
    def capture(self, progress: LoadProgress | None = None, pool: Any = None) -> None:
        """Capture every size, the largest first: the smaller ones then find room in its memory. The caches stay as they
        are.

        pool  memory that `new_pool` returned, if it is shared with another model's graphs, of which none is replayed
              while results of these are needed
        """
        is_cuda = self._device.type == "cuda"
        pool = pool or new_pool(self._device)
        stream = torch.cuda.Stream() if is_cuda else None  # type: ignore[no-untyped-call]
        for padding in (progress or LoadProgress()).each(self.paddings[::-1], "Capturing graphs", "graph"):
            self._fill(padding)
            if padding.is_decode:
                self._decode[padding] = _captured(partial(self._logits, padding), pool, stream)
            else:
                self._mixed[padding] = _captured(partial(self._hidden, padding), pool, stream)

    @torch.inference_mode()
    def decode(
        self, input_ids: Tensor, metadata: AttentionMetadata, padding: Padding, num_rows: int
    ) -> Tensor | None:
        """Returns the float32 logits [num_rows, V] of a decode step that was padded, its own rows first; None on ranks
        other than 0."""
        self._take(input_ids, metadata)
        logits = self._decode[padding].replay()
        return None if logits is None else logits[:num_rows]

    @torch.inference_mode()
    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, padding: Padding) -> Hidden:
        """Returns the blocks' output for a padded step, its own tokens first."""
        self._take(input_ids, metadata)
        return self._mixed[padding].replay()

    @torch.inference_mode()
    def run_largest(self) -> int:
        """Run the largest step of each kind without capturing it, to see what memory it takes. Returns the bytes of
        what all captured steps return."""
        num_bytes = 0
        for kind in ([each for each in self.paddings if each.is_decode == is_decode] for is_decode in (True, False)):
            for padding in kind[-1:]:
                self._fill(padding)
                result = self._logits(padding) if padding.is_decode else self._hidden(padding)
                tensors = (result.x, result.delta) if isinstance(result, Hidden) else (result,)
                size = sum(tensor.nbytes for tensor in tensors if tensor is not None)
                num_bytes += size * sum(each.num_tokens for each in kind) // padding.num_tokens
        return num_bytes

    def _make_room(self) -> dict[str, Tensor]:
        """Returns where captured steps read their token ids, and all else by the names of attention's metadata."""
        if not self.paddings:
            return {}
        tokens, rows = (batch.only_padding(max(self.paddings, key=attrgetter(size)), self._bounds)
                        for size in ("num_tokens", "num_rows"))
        return {name: torch.from_numpy(max(tokens[name], rows[name], key=len)).to(self._device) for name in tokens}

    def _fill(self, padding: Padding) -> None:
        """Let a step be there that is all padding."""
        for name, array in batch.only_padding(padding, self._bounds).items():
            self._room[name][:len(array)].copy_(torch.from_numpy(array))

    def _take(self, input_ids: Tensor, metadata: AttentionMetadata) -> None:
        """Let a step be there that was padded; its tables may be narrower than they can be."""
        for name, room in self._room.items():
            own = input_ids if name == "ids" else getattr(metadata, name)
            room[tuple(slice(size) for size in own.shape)].copy_(own)

    def _logits(self, padding: Padding) -> Tensor | None:
        return self._model.logits(self._hidden(padding), self._rows[:padding.num_rows])

    def _hidden(self, padding: Padding) -> Hidden:
        ids, positions, slot_mapping = (self._room[name][:padding.num_tokens] for name in OF_TOKENS)
        tables, starts, counts = (self._room[name][:padding.num_rows] for name in OF_ROWS)
        slots = self._room["slots"][:padding.num_rows] if "slots" in self._room else None
        metadata = AttentionMetadata(
            positions, slot_mapping, tables, starts, counts, slots, is_decode=padding.is_decode)
        return self._model.forward(ids, metadata, self._caches)


def new_pool(device: torch.device) -> Any:
    """Returns memory for graphs; None where there are none."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


def _captured(run: Callable[[], Result], pool: Any, stream: torch.cuda.Stream | None) -> Captured[Result]:
    return _CudaGraph(run, pool, stream) if stream else _Call(run)
