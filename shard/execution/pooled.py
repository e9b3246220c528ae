"""Makes the vectors and scores of a step's rows, those that ask for them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from penstock.contract.output import Output
from penstock.contract.pooling import POOLING, Pooling, Task
from penstock.contract.row import Row
from penstock.shard.execution.other_results import Computed, Making
from penstock.shard.execution.slots import OrderError, Slot
from penstock.shard.pooling.pooler import Pooler, cut, cut_each
from penstock.shard.pooling.sums import Running, Tokens, add_tokens, pooled

Vectors = Callable[[Tensor], Tensor]
"""Returns the vectors of tokens, [N, C], given where these are among the step's, int64 [N]."""


@dataclass(frozen=True, slots=True)
class _Text:
    """Names the tokens of a row whose vectors are read."""

    row: Row
    state: Slot
    pooling: Pooling
    first: int                           # its place among the step's tokens
    start: int                           # its position
    count: int

    @property
    def is_done(self) -> bool:
        return self.row.output is Output.POOL


def launch(pooler: Pooler, vectors: Vectors, computed: Computed, answers: bool) -> Making | None:
    """Sends the device the work for the rows that ask for vectors or scores. Every rank of the last stage calls it; the
    results are those of the one that `answers`."""
    texts = [*_texts(pooler, computed)]
    if not texts or (not answers and pooler.sparse is None):
        return None
    places = np.concatenate([np.arange(text.first, text.first + text.count) for text in texts])
    x = vectors(computed.slots.device.upload([places])[0]).float()
    of_texts = torch.split(x, [text.count for text in texts])
    if pooler.sparse is not None:
        return _sparse(pooler, texts, x)
    all_tokens = [(text, own) for text, own in zip(texts, of_texts, strict=True) if text.pooling.task is Task.EMBED_ALL]
    others = [(text, own) for text, own in zip(texts, of_texts, strict=True) if text.pooling.task is not Task.EMBED_ALL]
    done = [text for text, _ in others if text.is_done]
    found = {text.row.slot: cut(own, *_form(text)) for text, own in all_tokens}
    if others:
        rows = _pooled(pooler, others)
        if done:
            made = pooler(torch.stack(rows))
            found |= zip((text.row.slot for text in done), _in_their_forms(made, done), strict=True)
    return _making(found)


def _texts(pooler: Pooler, computed: Computed) -> Iterator[_Text]:
    """Yields the rows whose tokens are read."""
    reads_last = pooler.config.pools_last and pooler.sparse is None
    ends = accumulate(row.num_inputs for row in computed.rows)
    for row, end in zip(computed.rows, ends, strict=True):
        state, is_done = computed.slots[row.slot], row.output is Output.POOL
        pooling = _pooling(pooler, state, row)
        if pooling is None:
            continue
        if pooling.task is Task.EMBED_ALL or not reads_last:
            skipped = pooling.skipped if pooling.skipped < state.prompt_length else 0
            count = min(row.num_inputs, max(0, row.end - skipped))
            if is_done or pooling.task is not Task.EMBED_ALL:
                yield _Text(row, state, pooling, end - count, row.end - count, count)
        elif is_done:
            yield _Text(row, state, pooling, end - 1, row.end - 1, 1)


def _pooling(pooler: Pooler, state: Slot, row: Row) -> Pooling | None:
    """Returns the request of a row; None if it is for tokens. Raises OrderError for one that the model does not do."""
    pooling: Pooling | None = state.side_inputs.get(POOLING)
    if pooling is None:
        return Pooling(pooler.config.tasks[0]) if row.output is Output.POOL else None
    if pooling.task not in pooler.config.tasks:
        raise OrderError(f"slot {row.slot}: the task {pooling.task.value}, and the model's are "
                         f"{', '.join(task.value for task in pooler.config.tasks)}")
    size = pooler.token_size if pooling.task is Task.EMBED_ALL else pooler.vector_size
    if size and pooling.dimensions > size:
        raise OrderError(f"slot {row.slot}: {pooling.dimensions} dimensions of a vector that has {size}")
    return pooling


def _pooled(pooler: Pooler, texts: Sequence[tuple[_Text, Tensor]]) -> list[Tensor]:
    """Returns the pooled vectors [P * C] of the texts that end in this step; of the others it keeps what there is."""
    if pooler.config.pools_last:
        return [own[0] for _, own in texts]
    running = [_running(text) for text, _ in texts]
    tokens = [Tokens(state, text.start, text.count) for state, (text, _) in zip(running, texts, strict=True)]
    add_tokens(pooler.config.poolings, tokens, pooler.of_tokens(torch.cat([own for _, own in texts])))
    return [pooled(pooler.config.poolings, state) for state, (text, _) in zip(running, texts, strict=True)
            if text.is_done]


def _running(text: _Text) -> Running:
    """Returns the running sums of a row's text, up to the row. Raises OrderError if those are of other tokens."""
    row, state = text.row, text.state
    if row.start == 0 or state.running is None:
        state.running = Running()
    if state.running.end != row.start:
        raise OrderError(f"slot {row.slot}: start {row.start}, but the vectors of its tokens are read in their order, "
                         f"and have come to position {state.running.end}")
    state.running.end = row.end
    return state.running


def _in_their_forms(made: Tensor, texts: Sequence[_Text]) -> list[Tensor]:
    if any(text.pooling.task is Task.CLASSIFY for text in texts):
        return [*made]
    return cut_each(made, [_form(text) for text in texts])


def _form(text: _Text) -> tuple[int, bool]:
    return text.pooling.dimensions, text.pooling.normalized


def _sparse(pooler: Pooler, texts: Sequence[_Text], x: Tensor) -> Making | None:
    assert pooler.sparse is not None
    head, slots = pooler.sparse, [text.row.slot for text in texts]
    numbers = head(x, [text.count for text in texts])
    if numbers is None:
        return None

    def read(tensors: Sequence[Tensor]) -> Mapping[int, bytes]:
        found = {}
        for slot, row in zip(slots, tensors[0], strict=True):
            indices, values = head.read(row)
            found[slot] = indices.astype("<u4").tobytes() + values.astype("<f4").tobytes()
        return found

    return Making([numbers], read)


def _making(found: Mapping[int, Tensor]) -> Making | None:
    if not found:
        return None

    def read(tensors: Sequence[Tensor]) -> Mapping[int, bytes]:
        return {slot: tensor.numpy().astype("<f4").tobytes() for slot, tensor in zip(found, tensors, strict=True)}

    return Making([*found.values()], read)
