"""The choice of experts in Triton: a program for each token, in float32; sums are over ascending experts."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.route.form import RouteForm

LOWEST = tl.constexpr(-3.4e38)
"""Stands in the choice for what is not a number, or below it: only what was chosen, or cannot be, is -inf there, so
each expert is chosen once at the most, whatever the logits are."""


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _leave_groups(choice, expert, NUM_EXPERTS: tl.constexpr, GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr,
                  GROUP_BEST: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the choice without the experts of all but the best groups."""
    size: tl.constexpr = NUM_EXPERTS // GROUPS
    scores = tl.full([BLOCK], float("-inf"), tl.float32)  # the score of its group, for each group's first expert
    for group in range(GROUPS):
        left = tl.where(expert // size == group, choice, float("-inf"))
        score = 0.0
        for _ in range(GROUP_BEST):
            best = tl.argmax(left, axis=0, tie_break_left=True)
            score += tl.max(left, axis=0)
            left = tl.where(expert == best, float("-inf"), left)
        scores = tl.where(expert == group * size, score, scores)
    allowed = expert < 0
    for _ in range(TOP_GROUPS):
        best = tl.argmax(scores, axis=0, tie_break_left=True)
        allowed = allowed | (expert // size == best // size)
        scores = tl.where(expert == best, float("-inf"), scores)
    return tl.where(allowed, choice, float("-inf"))


@triton.jit
def _route(logits, bias, ids, weights, scale, jitter, NUM_EXPERTS: tl.constexpr, BLOCK: tl.constexpr,
           TOP_K: tl.constexpr, SCORING: tl.constexpr, IS_NORMALISED: tl.constexpr,
           HAS_BIAS: tl.constexpr, GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr, GROUP_BEST: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, BLOCK)
    is_expert = expert < NUM_EXPERTS
    x = tl.load(logits + token * NUM_EXPERTS + expert, mask=is_expert, other=float("-inf"))
    if SCORING == "sigmoid":
        scores = tl.where(is_expert, _sigmoid(x), 0.0)
        choice = tl.where(is_expert, scores, float("-inf"))
    else:
        power = tl.exp(x - tl.max(x, axis=0))
        scores = power / tl.sum(power, axis=0)
        choice = x
    if HAS_BIAS:
        choice = tl.where(is_expert, scores + tl.load(bias + expert, mask=is_expert, other=0.0), float("-inf"))
    choice = tl.where(is_expert & ~(choice > LOWEST), LOWEST, choice)
    if GROUPS > 1:
        choice = _leave_groups(choice, expert, NUM_EXPERTS, GROUPS, TOP_GROUPS, GROUP_BEST, BLOCK)
    taken = expert < 0
    weight = tl.zeros([BLOCK], tl.float32)
    for _ in range(TOP_K):
        best = tl.argmax(tl.where(taken, float("-inf"), choice), axis=0, tie_break_left=True)
        if SCORING == "sparse_mixer":
            left = tl.where(taken | ~is_expert, float("-inf"), tl.where(x > LOWEST, x, LOWEST))
            top = tl.max(left, axis=0)
            is_far = (top - x) / tl.maximum(tl.abs(x), top) > 2 * jitter
            near = tl.exp(tl.where(is_far | (expert >= NUM_EXPERTS), float("-inf"), left) - top)
            scores = near / tl.sum(near, axis=0)
        weight = tl.where(expert == best, scores, weight)
        taken = taken | (expert == best)
    if IS_NORMALISED:
        weight = weight / tl.sum(weight, axis=0)
    place = tl.cumsum(taken.to(tl.int32), axis=0) - 1
    tl.store(ids + token * TOP_K + place, expert, mask=taken)
    tl.store(weights + token * TOP_K + place, weight * scale, mask=taken)


def route(logits: Tensor, bias: Tensor | None, form: RouteForm) -> tuple[Tensor, Tensor]:
    (num_tokens, num_experts), top_k = logits.shape, form.top_k
    ids = torch.empty(num_tokens, top_k, dtype=torch.int32, device=logits.device)
    weights = torch.empty(num_tokens, top_k, device=logits.device)
    if num_tokens:
        _route[(num_tokens,)](
            logits, bias, ids, weights, form.scale, form.jitter, NUM_EXPERTS=num_experts,
            BLOCK=triton.next_power_of_2(num_experts), TOP_K=top_k,
            SCORING=str(form.scoring), IS_NORMALISED=form.is_normalised, HAS_BIAS=bias is not None,
            GROUPS=form.num_groups, TOP_GROUPS=form.top_groups, GROUP_BEST=form.group_best, num_warps=1)
    return ids, weights
