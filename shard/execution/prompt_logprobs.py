"""Computes the logprobs of a prompt's own tokens, from the logits as they are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from penstock.contract.row import Row
from penstock.contract.row_result import TopLogprobs
from penstock.kernels.prompt_logprobs import prompt_logprobs
from penstock.kernels.ranks import ranks
from penstock.shard.devices.device import Array
from penstock.shard.execution.batch import StepInputs
from penstock.shard.execution.slots import SlotTable

SLICE = 64                               # tokens whose logits are in memory together, however long the chunk is


@dataclass(frozen=True, slots=True)
class RowPromptLogprobs:
    """Holds the logprobs of a row's `prompt_logprob_ids`, and their ranks; `top_logprobs` is empty unless they were
    asked for."""

    logprobs: tuple[float, ...]
    ranks: tuple[int, ...]
    top_logprobs: tuple[TopLogprobs, ...]


@dataclass(frozen=True, slots=True)
class PromptLogprobsBatch:
    """Lists the tokens of a step whose prompt logprobs are wanted, as far as the host knows them."""

    slots: list[tuple[int, int, int]]    # for each slot that has some: the slot, how many, how many top logprobs each
    columns: dict[str, Array]            # to be uploaded with the step
    top_width: int = 0


def prepare(rows: tuple[Row, ...], slots: SlotTable) -> PromptLogprobsBatch:
    """Collect the tokens whose logprobs are wanted, of rows that `slots` has taken in."""
    wanted = [(row.slot, len(row.prompt_logprob_ids), slots[row.slot].sampling.top_n)
              for row in rows if len(row.prompt_logprob_ids)]
    if not wanted:
        return PromptLogprobsBatch([], {})
    _, lengths, top_n = zip(*wanted, strict=True)
    return PromptLogprobsBatch(wanted, {"prompt_top_n": np.repeat(np.array(top_n, np.int64), lengths)}, max(top_n))


def launch(
    batch: PromptLogprobsBatch, inputs: StepInputs, logits_after: Callable[[Tensor], Tensor | None]
) -> list[Tensor]:
    """Compute the tensors that `read` wants on the host, where the logits are; `inputs` have the batch's columns.

    logits_after   of tokens [N], indices into T: float32 [N, V] on the rank that answers, None elsewhere; every
                   rank of its stage calls it alike
    """
    slices = []
    for begin in range(0, len(inputs.prompt_logprob_rows), SLICE):
        part = slice(begin, begin + SLICE)
        logits = logits_after(inputs.prompt_logprob_rows[part])
        if logits is not None:
            targets = inputs.prompt_logprob_ids[part]
            logprobs, top_logprobs = prompt_logprobs(
                logits, targets, inputs.columns["prompt_top_n"][part], batch.top_width)
            slices.append((logprobs, top_logprobs.ids, top_logprobs.logprobs, ranks(logits, targets)))
    return [torch.cat(parts) for parts in zip(*slices, strict=True)]


def read(batch: PromptLogprobsBatch, tensors: Sequence[Tensor]) -> dict[int, RowPromptLogprobs]:
    """Returns the logprobs by slot, from the tensors of `launch`, which are on the host now."""
    if not tensors:
        return {}
    logprobs, tops, places = tensors[0].tolist(), to_top_logprobs(tensors[1], tensors[2]), tensors[3].tolist()
    found, begin = {}, 0
    for slot, length, top_n in batch.slots:
        own = slice(begin, begin + length)
        found[slot] = RowPromptLogprobs(
            tuple(logprobs[own]), tuple(places[own]), tuple(tops[own]) if top_n else ())
        begin += length
    return found


def to_top_logprobs(ids: Tensor, logprobs: Tensor) -> list[TopLogprobs]:
    """Returns the top logprobs of each row, less the places that are not used, from the kernel's two columns."""
    num_rows, width = ids.shape
    if not width:
        return [()] * num_rows
    return [
        tuple((token_id, logprob) for token_id, logprob in zip(*row, strict=True) if token_id >= 0)
        for row in zip(ids.tolist(), logprobs.tolist(), strict=True)]
