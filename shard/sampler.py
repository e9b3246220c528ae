"""The tokens of a step's sampled rows: chosen on rank 0, known on every rank."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernels.sample import SampleParameters, sample
from shard.distributed import Group
from shard.slots import SlotTable
from shard.step import Row, RowResult


def sample_rows(
    rows: list[Row], logits: Tensor | None, slots: SlotTable, group: Group
) -> tuple[RowResult, ...]:
    """Sample one token after each row and note it in `slots`.

    logits   float32 [len(rows), V] on rank 0, None elsewhere. Only rank 0 gets results.
    """
    slot_ids = np.array([row.slot for row in rows], np.int64)
    if logits is None:
        token_ids = torch.empty(len(rows), dtype=torch.int64)
        group.broadcast(token_ids)
        slots.note_samples(slot_ids, token_ids)
        return ()
    history_ids, offsets = slots.histories(slot_ids.tolist())
    token_ids, logprobs = sample(
        logits, _parameters(rows, slot_ids, slots), torch.from_numpy(history_ids), torch.from_numpy(offsets))
    group.broadcast(token_ids)
    slots.note_samples(slot_ids, token_ids)
    return tuple(
        RowResult(row.slot, (token_id,), (logprob,))
        for row, token_id, logprob in zip(rows, token_ids.tolist(), logprobs.tolist(), strict=True))


def _parameters(rows: list[Row], slot_ids: npt.NDArray[np.int64], slots: SlotTable) -> SampleParameters:
    """A token sampled after position p is number p + 1 - prompt_length of its output."""
    position = torch.tensor([row.end - slots[row.slot].prompt_length for row in rows], dtype=torch.int64)
    fields = slots.sampling[slot_ids]
    columns = {name: torch.from_numpy(fields[name].copy()) for name in fields.dtype.names or ()}
    return SampleParameters(position=position, **columns)
