"""The tokens of a step's sampled rows: chosen on rank 0, known on every rank."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernels.sample import Biases, History, SampleParameters, sample
from kernels.score import score
from shard.distributed import Group
from shard.masks import WORD, Masks
from shard.scorer import to_tops
from shard.slots import Slot, SlotTable
from shard.step import Row, RowResult, Top
from shard.watermark import Watermark

Columns = dict[str, npt.NDArray[Any]]
"""A sampling's numbers, each of all rows."""


def sample_rows(
    rows: list[Row], logits: Tensor | None, slots: SlotTable, group: Group, watermark: Watermark, masks: Masks
) -> dict[int, RowResult]:
    """Sample one token after each row and note it in `slots`. Only rank 0 gets results, by slot.

    logits   float32 [len(rows), V] on rank 0, None elsewhere
    masks    what the rows of some slots may sample; read on rank 0
    """
    slot_ids = np.array([row.slot for row in rows], np.int64)
    if logits is None:
        ids = torch.empty(len(rows), dtype=torch.int64)
        group.broadcast(ids)
        slots.note_samples(slot_ids, ids)
        return {}
    states = [slots[row.slot] for row in rows]
    positions = [row.end - state.prompt_length for row, state in zip(rows, states, strict=True)]
    columns = {name: column[slot_ids] for name, column in slots.sampling.items()}
    history_ids, offsets = slots.histories(slot_ids.tolist())
    mask_index, mask_bits = _masks(rows, masks, logits.shape[1])
    sampled = sample(
        _mark(logits, states, watermark), _parameters(columns, states, positions, mask_index),
        History(torch.from_numpy(history_ids), torch.from_numpy(offsets)), _biases(states, positions), mask_bits)
    group.broadcast(sampled.ids)
    slots.note_samples(slot_ids, sampled.ids)
    token_ids, logprobs, tops = sampled.ids.tolist(), sampled.logprobs.tolist(), to_tops(sampled.top)
    for index, logprob, top in _score_raw(logits, sampled.ids, columns):
        logprobs[index], tops[index] = logprob, top
    return {
        row.slot: RowResult(row.slot, (token_id,), (logprob,), (top,) if state.sampling.top_n else ())
        for row, state, token_id, logprob, top in zip(rows, states, token_ids, logprobs, tops, strict=True)}


def _mark(logits: Tensor, states: list[Slot], watermark: Watermark) -> Tensor:
    """The logits, with a watermark in the rows that want one; those given stay as they are."""
    if not any(state.sampling.watermark for state in states):
        return logits
    logits = logits.clone()
    for row, state in zip(logits, states, strict=True):
        if state.sampling.watermark and state.history:
            watermark.add_to(row, state.history[-1])
    return logits


def _parameters(
    columns: Columns, states: list[Slot], positions: list[int], mask_index: Tensor
) -> SampleParameters:
    """A token sampled after position p is number p + 1 - prompt_length of its output."""
    top_n = np.where(columns["raw_logprobs"], 0, columns["top_n"])  # the others' likeliest are not of these scores
    changed = {
        **columns, "seed": columns["seed"].view(np.int64), "top_n": top_n, "position": np.array(positions, np.int64),
        "prompt_length": np.array([state.prompt_length for state in states], np.int64)}
    tensors = {name: torch.from_numpy(column) for name, column in changed.items() if name != "raw_logprobs"}
    return SampleParameters(mask=mask_index, **tensors)


def _biases(states: list[Slot], positions: list[int]) -> Biases:
    """Those that were asked for, and the bans of outputs that are not long enough."""
    offsets = np.zeros(len(states) + 1, np.int64)
    if not any(len(state.sampling.bias_ids) or len(state.sampling.banned_ids) for state in states):
        return Biases(torch.empty(0, dtype=torch.int64), torch.empty(0), torch.from_numpy(offsets))
    parts = []
    for state, position in zip(states, positions, strict=True):
        sampling = state.sampling
        ids, values = sampling.bias_ids, sampling.bias_values
        if position < sampling.min_tokens:
            bans = np.full(len(sampling.banned_ids), -np.inf, np.float32)
            ids, values = np.concatenate([ids, sampling.banned_ids]), np.concatenate([values, bans])
        parts.append((ids, values))
    np.cumsum([len(ids) for ids, _ in parts], out=offsets[1:])
    all_ids, all_values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Biases(torch.from_numpy(all_ids), torch.from_numpy(all_values), torch.from_numpy(offsets))


def _masks(rows: list[Row], masks: Masks, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Which mask each row has, or -1, and the masks."""
    if not masks:
        return torch.full((len(rows),), -1), torch.empty(0, -(-vocab_size // WORD), dtype=torch.int32)
    slots = [row.slot for row in rows if row.slot in masks]
    bits = torch.empty(len(slots), -(-vocab_size // WORD), dtype=torch.int32)
    for mask, slot in zip(bits, slots, strict=True):
        mask.copy_(torch.from_numpy(masks[slot]))
    number = {slot: index for index, slot in enumerate(slots)}
    return torch.tensor([number.get(row.slot, -1) for row in rows], dtype=torch.int64), bits


def _score_raw(
    logits: Tensor, token_ids: Tensor, columns: Columns
) -> Iterator[tuple[int, float, Top]]:
    """Index, logprob and the likeliest tokens of the rows that want them by their logits."""
    indices = np.flatnonzero(columns["raw_logprobs"])
    if not len(indices):
        return
    rows, top_n = torch.from_numpy(indices), torch.from_numpy(columns["top_n"][indices])
    logprobs, top = score(logits if len(rows) == len(logits) else logits[rows], token_ids[rows], top_n)
    yield from zip(indices.tolist(), logprobs.tolist(), to_tops(top), strict=True)
