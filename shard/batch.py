"""One step as tensors: ragged, without padding."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernels.attention_layer import Tokens
from shard.slots import SlotTable
from shard.step import Row


@dataclass(frozen=True, slots=True)
class StepInputs:
    """T tokens of S rows, R of them sampled; the tokens of a row are neighbours, in the order of their positions. N of
    the tokens are followed by one that is scored."""

    input_ids: Tensor        # int64 [T]
    tokens: Tokens           # where they belong; what lies in a table past a sequence's end is garbage
    output_rows: Tensor      # int64 [R]: index into T of the tokens after which one is sampled
    scored_rows: Tensor      # int64 [N]: index into T of the tokens after which one is scored
    score_ids: Tensor        # int64 [N]: the ones that are scored


def build(rows: tuple[Row, ...], slots: SlotTable) -> StepInputs:
    """The tensors of rows that `slots` has already taken in. Tokens sampled last are read where they lie."""
    starts = _column(np.int64, rows, (row.start for row in rows))
    counts = _column(np.int64, rows, (row.count for row in rows))
    slot_ids = _column(np.int64, rows, (row.slot for row in rows))
    is_sampled = _column(np.bool_, rows, (row.is_sampled for row in rows))
    ends = np.cumsum(counts)
    firsts = ends - counts

    row_of_token = np.repeat(np.arange(len(rows)), counts)
    positions = np.arange(ends[-1]) - (firsts - starts)[row_of_token]
    block_size = slots.bounds.block_size
    num_blocks = -(-int((starts + counts).max()) // block_size)
    tables = np.ascontiguousarray(slots.blocks[slot_ids, :num_blocks])
    slot_mapping = tables[row_of_token, positions // block_size].astype(np.int64) * block_size + positions % block_size
    return StepInputs(
        input_ids=_input_ids(rows, slots, slot_ids, firsts, int(ends[-1])),
        tokens=Tokens(
            positions=torch.from_numpy(positions),
            slots=torch.from_numpy(slot_mapping),
            tables=torch.from_numpy(tables),
            starts=torch.from_numpy(starts.astype(np.int32)),
            counts=torch.from_numpy(counts.astype(np.int32))),
        output_rows=torch.from_numpy((ends - 1)[is_sampled]),
        scored_rows=torch.from_numpy(_firsts_of(firsts, [len(row.score_ids) for row in rows])),
        score_ids=torch.from_numpy(np.concatenate([row.score_ids for row in rows])))


def _firsts_of(firsts: npt.NDArray[np.int64], lengths: list[int]) -> npt.NDArray[np.int64]:
    """From each of `firsts` on so many numbers."""
    if not any(lengths):
        return np.empty(0, np.int64)
    return np.concatenate([np.arange(first, first + length) for first, length in zip(firsts, lengths, strict=True)])


def _input_ids(
    rows: tuple[Row, ...], slots: SlotTable, slot_ids: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64],
    num_tokens: int,
) -> Tensor:
    from_last = _column(np.bool_, rows, (row.from_last_sample for row in rows))
    ids = np.empty(num_tokens, np.int64)
    is_known = np.ones(num_tokens, np.bool_)
    is_known[firsts[from_last]] = False
    ids[is_known] = np.concatenate([row.token_ids for row in rows])
    input_ids = torch.from_numpy(ids)
    input_ids[torch.from_numpy(firsts[from_last])] = slots.last_token[torch.from_numpy(slot_ids[from_last])]
    return input_ids


def _column(dtype: type[Any], rows: tuple[Row, ...], values: Iterable[int]) -> npt.NDArray[Any]:
    return np.fromiter(values, dtype, len(rows))
