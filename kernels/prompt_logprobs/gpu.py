"""Computes prompt logprobs in Triton: the parts of each row, and a program for each row that joins them.

kernels/softmax_gpu.py says how.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.prompt_logprobs.targets import check_targets
from penstock.kernels.softmax_gpu import (
    Parts,
    find_top_logprobs,
    is_number,
    join_sums,
    join_tops,
    split_row,
    write_top_logprobs,
)
from penstock.kernels.top_logprobs import TopLogprobs


@triton.jit
def _split(logits, top_n, tops, maxima, sums, leads, found, VOCABULARY: tl.constexpr, PART: tl.constexpr,
           BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = row * tl.num_programs(1) + tl.program_id(1)
    begin = tl.program_id(1) * PART
    scores = logits + row * VOCABULARY
    zero = tl.zeros([], tl.float32)
    infinity = zero + float("inf")
    split_row(scores, begin, scores, tops + index, maxima + index, sums + index, leads, zero + 1.0, -infinity, zero,
              zero, infinity, row, row, row, VOCABULARY, PART, BLOCK, False)
    if WIDTH:
        count = tl.minimum(tl.load(top_n + row), WIDTH)
        find_top_logprobs(scores, begin, found + index * WIDTH, count, -infinity, zero, zero, infinity, VOCABULARY,
                          PART, BLOCK)


@triton.jit(do_not_specialize=["width"])
def _join(logits, targets, top_n, tops, maxima, sums, leads, found, logprobs, top_ids, top_logprobs, width,
          VOCABULARY: tl.constexpr, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    is_finite = is_number(join_tops(tops + row * PARTS, PARTS, PARTS_BLOCK))
    one = tl.full([], 1.0, tl.float32)
    top, log_total = join_sums(maxima + row * PARTS, sums + row * PARTS, one, PARTS, PARTS_BLOCK)
    target = tl.load(targets + row)
    is_token = (target >= 0) & (target < VOCABULARY)
    score = tl.load(logits + row * VOCABULARY + target, mask=is_token, other=float("nan")).to(tl.float64)
    temperature = one.to(tl.float64)
    logprob = (score - top) / temperature - log_total
    tl.store(logprobs + row, tl.where(is_finite, logprob, float("nan")).to(tl.float32))
    if WIDTH:
        write_top_logprobs(top_ids + row * width, top_logprobs + row * width, width, found + row * PARTS * WIDTH,
                           tl.load(top_n + row), is_finite, top, temperature, log_total, PARTS, PARTS_BLOCK, WIDTH)


def prompt_logprobs(logits: Tensor, targets: Tensor, top_n: Tensor, top_width: int) -> tuple[Tensor, TopLogprobs]:
    if not logits.is_cuda:
        check_targets("prompt_logprobs", targets, logits.shape[1])
    logprobs = torch.empty(len(logits), device=logits.device)
    top = TopLogprobs.empty(len(logits), top_width, logits.device)
    if len(logits):
        parts = Parts(logits, top_width)
        tops, maxima, sums, leads, found = parts.tensors
        _split[parts.grid](logits, top_n, tops, maxima, sums, leads, found, **parts.split)
        _join[parts.grid[:1]](logits, targets, top_n, tops, maxima, sums, leads, found, logprobs, top.ids, top.logprobs,
                              top_width, **parts.join)
    return logprobs, top
