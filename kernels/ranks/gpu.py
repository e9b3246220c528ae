"""Counts in Triton: a program for each row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.prompt_logprobs.targets import check_targets

BLOCK = 1024


@triton.jit
def _count(logits, targets, found, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    is_token = (target >= 0) & (target < VOCABULARY)
    scores = logits + row * VOCABULARY
    own = tl.load(scores + target, mask=is_token, other=float("nan"))
    before = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, VOCABULARY, BLOCK):
        ids = begin + tl.arange(0, BLOCK)
        is_there = ids < VOCABULARY
        others = tl.load(scores + ids, mask=is_there, other=float("nan"))
        before += ((others > own) | ((others == own) & (ids < target))).to(tl.int32)
    tl.store(found + row, tl.sum(before).to(tl.int64) + 1)


def ranks(logits: Tensor, targets: Tensor) -> Tensor:
    if not logits.is_cuda:
        check_targets("ranks", targets, logits.shape[1])
    found = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    if len(logits):
        _count[(len(logits),)](logits, targets, found, VOCABULARY=logits.shape[1], BLOCK=BLOCK)
    return found
