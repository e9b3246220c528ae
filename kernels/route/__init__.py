"""The choice of experts for each token (Shazeer et al. 2017)."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import check_axes, check_tensor
from penstock.kernels.route import reference
from penstock.kernels.route.form import RouteForm

MAX_EXPERTS = 4096


_route = dispatch.choose(reference.route)


def route(logits: Tensor, bias: Tensor | None, form: RouteForm) -> tuple[Tensor, Tensor]:
    """Returns the chosen experts of each token, int32 [T, k] in ascending order, and their weights, float32 [T, k].

    logits  [T, E]  float32, E up to 4096
    bias    [E]     float32; added to scores for the choice alone

    A token chooses the k experts of the largest scores, of equal ones those of the lower numbers; where there are
    groups, from the best of these alone, and of equal ones the first. Raises ValueError for shapes, dtypes or forms
    that do not fit together.
    """
    op = "route"
    check_axes(op, "logits", logits, "T, E")
    num_experts = logits.shape[1]
    check_tensor(op, "logits", logits, logits.shape, torch.float32)
    if bias is not None:
        check_tensor(op, "bias", bias, (num_experts,), torch.float32)
    if not 0 < form.top_k <= num_experts <= MAX_EXPERTS:
        raise ValueError(f"{op}: {form.top_k} of {num_experts} experts: expected at least 1, at most all of "
                         f"{MAX_EXPERTS}")
    size = num_experts // form.num_groups if form.num_groups > 0 else 0
    if not size or size * form.num_groups != num_experts or not 0 < form.top_groups <= form.num_groups or (
            form.top_groups * size < form.top_k) or not 0 < form.group_best <= size:
        raise ValueError(f"{op}: {form.top_k} experts from {form.top_groups} of {form.num_groups} groups, the "
                         f"{form.group_best} best of each for its score, do not fit {num_experts} experts")
    return _route(logits, bias, form)
