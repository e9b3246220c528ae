"""Chooses the tokens of a step's sampled rows: on the rank that answers, which tells the others.

It has three parts, for the device runs behind the host: `prepare` collects what the host knows before the step runs,
`launch` sends the device its work behind the model, and `read` makes results of the numbers when they are there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.kernels.prompt_logprobs import prompt_logprobs
from penstock.kernels.sample import History, SampleParameters, sample
from penstock.kernels.sample.parameters import COLUMNS, find_passes
from penstock.shard.communication.stages import Stages
from penstock.shard.devices.device import Array
from penstock.shard.execution import biases
from penstock.shard.execution.masks import WORD, Mask, Masks
from penstock.shard.execution.prompt_logprobs import to_top_logprobs
from penstock.shard.execution.slots import Slot, SlotTable
from penstock.shard.execution.watermark import Watermark


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """Lists the rows of a step that are sampled, as far as the host knows them: R samples, of which a row with drafts
    has several."""

    rows: list[Row]
    states: list[Slot]                   # of each sample
    positions: list[int]                 # of each sample in its sequence
    columns: dict[str, Array]            # to be uploaded with the step
    top_width: int = 0                   # the largest number of top logprobs of a row
    passes: frozenset[str] = frozenset()  # over the scores, that some row has
    raw_rows: Sequence[int] = ()         # the samples whose logprobs are of the logits
    raw_top_width: int = 0


def prepare(rows: list[Row], slots: SlotTable, answers: bool) -> SamplingBatch:
    """Collect what sampling must know of rows that `slots` has taken in. `answers` tells whether this rank
    samples."""
    slot_ids = np.repeat(np.array([row.slot for row in rows], np.int64), [row.num_samples for row in rows])
    states = [slots[slot] for slot in slot_ids.tolist()]
    positions = [position for row in rows for position in row.sample_positions]
    places: dict[str, Array] = {"places": slots.places(rows)}
    if not answers or not rows:
        return SamplingBatch(rows, states, positions, places)
    of_output = [position - state.prompt_length for position, state in zip(positions, states, strict=True)]
    columns: dict[str, Array] = {name: column[slot_ids] for name, column in slots.sampling.items()}
    top_n = columns["top_n"]
    raw_rows = [index for index, state in enumerate(states) if state.sampling.raw_logprobs]
    raw_top_width = 0
    if raw_rows:
        columns |= {"raw_rows": np.array(raw_rows, np.int64), "raw_top_n": top_n[raw_rows]}
        raw_top_width = int(top_n[raw_rows].max())
        top_n[raw_rows] = 0              # their top logprobs are not of the scores that tokens are sampled from
    top_width = max(0 if state.sampling.raw_logprobs else state.sampling.top_n for state in states)
    columns |= places | biases.prepare(rows, states, of_output, slots) | {
        "seed": columns["seed"].view(np.int64), "position": np.array(of_output, np.int64),
        "prompt_length": np.array([state.prompt_length for state in states], np.int64),
        "mask": np.full(len(states), -1), "history_offsets": slots.history_offsets(rows)}
    return SamplingBatch(
        rows, states, positions, columns, top_width, find_passes(columns), raw_rows, raw_top_width)


def launch(
    batch: SamplingBatch, columns: Mapping[str, Tensor], logits: Tensor | None, slots: SlotTable, stages: Stages,
    watermark: Watermark, masks: Masks,
) -> list[Tensor]:
    """Sample the tokens of each row and note them in `slots`. Returns the tensors that `read` wants on the host.

    columns  the batch's, on the device
    logits   float32 [R, V] on the rank that answers, None elsewhere
    masks    what the rows of some slots may sample; read where the logits are
    """
    if not batch.rows:
        return []
    if logits is None:
        ids = torch.empty(len(batch.states), dtype=torch.int64, device=slots.device.device)
        if stages.count == 1:
            stages.learn(ids, partial(slots.note_samples, batch.rows, ids, columns["places"]))
        else:                            # when they come, the slots may have other sequences
            slots.expect_samples(batch.rows)
            stages.learn(ids, partial(slots.keep_last, ids, columns["places"]))
        return []
    mask_index, mask_bits = _masks(batch, columns, masks, logits, slots)
    parameters = {name: columns[name] for name in COLUMNS}
    sampled = sample(
        _mark(batch, logits, slots, watermark), SampleParameters(batch.passes, **{**parameters, "mask": mask_index}),
        History(slots.histories(batch.rows), columns["history_offsets"]),
        biases.launch(columns, slots), mask_bits, batch.top_width)
    stages.tell(sampled.ids)
    slots.note_samples(batch.rows, sampled.ids, columns["places"])
    tensors = [sampled.ids, sampled.logprobs, sampled.top_logprobs.ids, sampled.top_logprobs.logprobs]
    if batch.raw_rows:
        rows = columns["raw_rows"]
        of_rows = (logits, sampled.ids) if len(rows) == len(logits) else (logits[rows], sampled.ids[rows])
        logprobs, top_logprobs = prompt_logprobs(*of_rows, columns["raw_top_n"], batch.raw_top_width)
        tensors += [logprobs, top_logprobs.ids, top_logprobs.logprobs]
    return tensors


def read(batch: SamplingBatch, tensors: Sequence[Tensor]) -> dict[int, RowResult]:
    """Returns the results by slot, from the tensors of `launch`, which are on the host now. Only the rank that
    answers has some.

    Of a row with drafts they have the samples that equal its first drafts, and the one after: what comes later was
    sampled after a wrong token.
    """
    if not tensors:
        return {}
    token_ids, logprobs = tensors[0].tolist(), tensors[1].tolist()
    tops = to_top_logprobs(tensors[2], tensors[3])
    if batch.raw_rows:
        for index, logprob, top in zip(
                batch.raw_rows, tensors[4].tolist(), to_top_logprobs(tensors[5], tensors[6]), strict=True):
            logprobs[index], tops[index] = logprob, top
    results, begin = {}, 0
    for row in batch.rows:
        drafts, sampled = row.drafts, token_ids[begin : begin + row.num_samples]
        kept = next((index for index, draft in enumerate(drafts) if sampled[index] != draft), len(drafts)) + 1
        own, has_tops = slice(begin, begin + kept), batch.states[begin].sampling.top_n
        results[row.slot] = RowResult(
            row.slot, tuple(sampled[:kept]), tuple(logprobs[own]), tuple(tops[own]) if has_tops else ())
        begin += row.num_samples
    return results


def _mark(batch: SamplingBatch, logits: Tensor, slots: SlotTable, watermark: Watermark) -> Tensor:
    """Returns the logits with a watermark in the rows that want one; those given stay as they are.

    The green list is drawn on the host, from the token before: so a step with such a row waits for the device, and is
    not launched ahead.
    """
    if not any(state.sampling.watermark for state in batch.states):
        return logits
    logits = logits.clone()
    slot_ids = [row.slot for row in batch.rows for _ in row.sample_positions]
    for row, slot, state, position in zip(logits, slot_ids, batch.states, batch.positions, strict=True):
        if state.sampling.watermark and (previous := slots.token_at(slot, position - 1)) is not None:
            watermark.add_to(row, previous)
    return logits


def _masks(
    batch: SamplingBatch, columns: Mapping[str, Tensor], masks: Masks, logits: Tensor, slots: SlotTable
) -> tuple[Tensor, Tensor]:
    """Returns which mask each sample has, or -1, and the masks. They come late, so they have an upload of their own."""
    of_rows = [_mask(row, slots[row.slot].allowed, masks.get(row.slot)) for row in batch.rows]
    masked = [each for each in of_rows if each is not None]
    if not masked:
        return columns["mask"], logits.new_empty(0, -(-logits.shape[1] // WORD), dtype=torch.int32)
    has_mask = np.repeat([each is not None for each in of_rows], [row.num_samples for row in batch.rows])
    index = np.where(has_mask, np.cumsum(has_mask) - 1, -1)
    index_there, bits = slots.device.upload([index, np.concatenate(masked)])
    return index_there, bits


def _mask(row: Row, allowed: Mask | None, late: Mask | None) -> Mask | None:
    """Returns a mask for each sample of a row: of what is always allowed there, and of what came late. Where nothing is
    both, the latter counts."""
    if allowed is None:
        return late
    if late is None:
        return np.repeat(allowed[None], row.num_samples, axis=0)
    both = late & allowed
    return np.where(both.any(axis=1, keepdims=True), both, late)
