"""Makes log-probabilities of logits before anything adjusts them, in Triton, for the rows that are to have that: one
launch finds the softmax of a row's parts, one joins them, and whoever adjusts a score takes its row's total off."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.sample.parameters import SampleParameters
from penstock.kernels.softmax_gpu import NOBODY, Parts, is_number, join_sums, join_tops, split_row


@triton.jit(do_not_specialize_on_alignment=["of_logprobs", "do_sample"])
def _split(logits, of_logprobs, do_sample, tops, maxima, sums, VOCABULARY: tl.constexpr, PART: tl.constexpr,
           BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = row * tl.num_programs(1) + tl.program_id(1)
    if (tl.load(of_logprobs + row) != 0) & (tl.load(do_sample + row) == 0):
        scores = logits + row * VOCABULARY
        split_row(scores, tl.program_id(1) * PART, scores, tops + index, maxima + index, sums + index, tops, 1.0,
                  -float("inf"), 0.0, 0.0, float("inf"), row, row, row, VOCABULARY, PART, BLOCK, False)
    else:
        tl.store(tops + index, NOBODY)


@triton.jit
def _join(tops, maxima, sums, totals, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full([], float("nan"), tl.float64)
    log_total = tl.full([], float("nan"), tl.float64)
    if is_number(join_tops(tops + row * PARTS, PARTS, PARTS_BLOCK)):
        top, log_total = join_sums(maxima + row * PARTS, sums + row * PARTS, 1.0, PARTS, PARTS_BLOCK)
    tl.store(totals + row * 2, top)
    tl.store(totals + row * 2 + 1, log_total)


def find_totals(logits: Tensor, parameters: SampleParameters, is_wanted: bool) -> Tensor:
    """Returns each row's top logit and the logarithm of its total relative to that, float64 [R, 2]: NaN for rows that
    keep their logits. Empty unless `is_wanted`."""
    totals = torch.empty(len(logits) if is_wanted else 0, 2, dtype=torch.float64, device=logits.device)
    if not is_wanted:
        return totals
    parts = Parts(logits, 0)
    tops, maxima, sums, _, _ = parts.tensors
    split = {name: value for name, value in parts.split.items() if name != "WIDTH"}
    _split[parts.grid](logits, parameters.of_logprobs, parameters.do_sample, tops, maxima, sums, **split)
    _join[parts.grid[:1]](
        tops, maxima, sums, totals, PARTS=parts.join["PARTS"], PARTS_BLOCK=parts.join["PARTS_BLOCK"], num_warps=1)
    return totals


@triton.jit
def total_of(totals, has_totals, row):
    """Returns a row's numbers of `find_totals`, and whether it is to have log-probabilities."""
    top = tl.load(totals + row * 2, mask=has_totals != 0, other=float("nan"))
    log_total = tl.load(totals + row * 2 + 1, mask=has_totals != 0, other=float("nan"))
    return top, log_total, top == top


@triton.jit
def to_logprob(score, top, log_total):
    """Returns log-probabilities of logits, float32: those that are reported of a row that nothing adjusts."""
    return (score.to(tl.float64) - top - log_total).to(tl.float32)
