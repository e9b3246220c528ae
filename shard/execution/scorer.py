"""The logprobs of tokens that are given, by the logits as they are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from penstock.kernels.score import score
from penstock.shard.devices.device import Array
from penstock.shard.execution.batch import StepInputs
from penstock.shard.execution.slots import SlotTable
from penstock.shard.execution.step import Row, Top

SLICE = 64                               # tokens whose logits are in memory together, however long the chunk is


@dataclass(frozen=True, slots=True)
class Scores:
    """Of a row's `score_ids`; `top` is empty unless it was asked for."""

    logprobs: tuple[float, ...]
    top: tuple[Top, ...]


@dataclass(frozen=True, slots=True)
class Scoring:
    """What the host knows of the tokens of a step that are scored: for each slot that has some, how many, and how many
    of the likeliest are told with each."""

    slots: list[tuple[int, int, int]]
    columns: dict[str, Array]            # to be uploaded with the step
    top_width: int = 0


def prepare(rows: tuple[Row, ...], slots: SlotTable) -> Scoring:
    """Of rows that `slots` has taken in."""
    scored = [(row.slot, len(row.score_ids), slots[row.slot].sampling.top_n) for row in rows if len(row.score_ids)]
    if not scored:
        return Scoring([], {})
    _, lengths, top_n = zip(*scored, strict=True)
    return Scoring(scored, {"score_top_n": np.repeat(np.array(top_n, np.int64), lengths)}, max(top_n))


def launch(scoring: Scoring, inputs: StepInputs, logits_after: Callable[[Tensor], Tensor | None]) -> list[Tensor]:
    """What `read` wants to have on the host; nothing on other ranks than 0. The inputs have the scoring's columns.

    logits_after   of tokens [N], indices into T: float32 [N, V] on rank 0, None elsewhere; every rank calls it alike
    """
    slices = []
    for begin in range(0, len(inputs.scored_rows), SLICE):
        part = slice(begin, begin + SLICE)
        logits = logits_after(inputs.scored_rows[part])
        if logits is not None:
            logprobs, top = score(
                logits, inputs.score_ids[part], inputs.columns["score_top_n"][part], scoring.top_width)
            slices.append((logprobs, top.ids, top.logprobs))
    return [torch.cat(parts) for parts in zip(*slices, strict=True)]


def read(scoring: Scoring, tensors: Sequence[Tensor]) -> dict[int, Scores]:
    """The scores by slot, from what `launch` returned, on the host."""
    if not tensors:
        return {}
    logprobs, tops = tensors[0].tolist(), to_tops(tensors[1], tensors[2])
    scores, first = {}, 0
    for slot, length, top_n in scoring.slots:
        own = slice(first, first + length)
        scores[slot] = Scores(tuple(logprobs[own]), tuple(tops[own]) if top_n else ())
        first += length
    return scores


def to_tops(ids: Tensor, logprobs: Tensor) -> list[Top]:
    """The likeliest tokens of each row of a `TopLogprobs`, less the places that are not used."""
    num_rows, width = ids.shape
    if not width:
        return [()] * num_rows
    return [
        tuple((token_id, logprob) for token_id, logprob in zip(*row, strict=True) if token_id >= 0)
        for row in zip(ids.tolist(), logprobs.tolist(), strict=True)]
