"""The choice of experts in torch, in float64."""

import torch
from torch import Tensor

from penstock.kernels.route.form import RouteForm, Scoring


def route(logits: Tensor, bias: Tensor | None, form: RouteForm) -> tuple[Tensor, Tensor]:
    if form.scoring is Scoring.SPARSE_MIXER:
        return _mix(logits.double(), form)
    exact = logits.double()
    scores = exact.sigmoid() if form.scoring is Scoring.SIGMOID else exact.softmax(dim=1)
    choice = logits if form.scoring is Scoring.SOFTMAX else scores
    if bias is not None:
        choice = scores + bias
    if form.num_groups > 1:
        choice = choice.masked_fill(~_allowed(choice, form), -torch.inf)
    ids, _ = _best(choice, form.top_k).sort(dim=1)
    weights = scores.gather(1, ids)
    if form.is_normalised:
        weights = weights / weights.sum(dim=1, keepdim=True)
    return ids.int(), (weights * form.scale).float()


def _best(scores: Tensor, count: int) -> Tensor:
    """Returns the numbers of the largest scores of each row, of equal ones the first."""
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :count]


def _allowed(choice: Tensor, form: RouteForm) -> Tensor:
    """Returns which experts are in the best groups: bool [T, E]."""
    groups = choice.view(len(choice), form.num_groups, -1)
    best = _best(groups.topk(form.group_best, dim=2).values.sum(dim=2), form.top_groups)
    chosen = torch.zeros(groups.shape[:2], dtype=torch.bool, device=choice.device).scatter_(1, best, True)
    return chosen[:, :, None].expand(groups.shape).flatten(1)


def _mix(logits: Tensor, form: RouteForm) -> tuple[Tensor, Tensor]:
    left, ids, weights = logits, [], []
    for _ in range(form.top_k):
        best = _best(left, 1)
        top = left.gather(1, best)
        is_far = (top - logits) / torch.maximum(logits.abs(), top) > 2 * form.jitter
        ids.append(best)
        weights.append(left.masked_fill(is_far, -torch.inf).softmax(dim=1).gather(1, best))
        left = left.scatter(1, best, -torch.inf)
    order = torch.cat(ids, dim=1).sort(dim=1)
    return order.values.int(), (torch.cat(weights, dim=1).gather(1, order.indices) * form.scale).float()
