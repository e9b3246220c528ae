"""The logprobs of tokens that are given, by the logits as they are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.likeliest import Likeliest
from kernels.score import score
from shard.batch import StepInputs
from shard.slots import SlotTable
from shard.step import Row, Top

SLICE = 64                               # tokens whose logits are in memory together, however long the chunk is


@dataclass(frozen=True, slots=True)
class Scores:
    """Of a row's `score_ids`; `top` is empty unless it was asked for."""

    logprobs: tuple[float, ...]
    top: tuple[Top, ...]


def score_rows(
    rows: tuple[Row, ...], inputs: StepInputs, slots: SlotTable, logits_after: Callable[[Tensor], Tensor | None]
) -> Mapping[int, Scores]:
    """The scores of each slot that has some, on rank 0; nothing on the others.

    logits_after   of tokens [N], indices into T: float32 [N, V] on rank 0, None elsewhere; every rank calls it alike
    """
    if not len(inputs.scored_rows):
        return {}
    rows = tuple(row for row in rows if len(row.score_ids))
    lengths = [len(row.score_ids) for row in rows]
    top_n = torch.tensor([slots[row.slot].sampling.top_n for row in rows], dtype=torch.int64)
    top_n = top_n.repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
    logprobs: list[float] = []
    tops: list[Top] = []
    for begin in range(0, len(top_n), SLICE):
        part = slice(begin, begin + SLICE)
        logits = logits_after(inputs.scored_rows[part])
        if logits is not None:
            found, likeliest = score(logits, inputs.score_ids[part], top_n[part])
            logprobs += found.tolist()
            tops += to_tops(likeliest)
    if not logprobs:
        return {}
    scores, first = {}, 0
    for row, length in zip(rows, lengths, strict=True):
        own = slice(first, first + length)
        has_top = slots[row.slot].sampling.top_n > 0
        scores[row.slot] = Scores(tuple(logprobs[own]), tuple(tops[own]) if has_top else ())
        first += length
    return scores


def to_tops(likeliest: Likeliest) -> list[Top]:
    """Those of each row, less the places that are not used."""
    num_rows, width = likeliest.ids.shape
    if not width:
        return [()] * num_rows
    return [
        tuple((token_id, logprob) for token_id, logprob in zip(*row, strict=True) if token_id >= 0)
        for row in zip(likeliest.ids.tolist(), likeliest.logprobs.tolist(), strict=True)]
