"""Full attention in torch: float64 inside, one rounding at the end, one sequence after the other."""

import torch
from torch import Tensor

from penstock.kernels.full_attention.lengths import check_counts


def full_attention(
    q: Tensor, k: Tensor, v: Tensor, counts: Tensor, scale: float, window: int, bias: Tensor | None
) -> Tensor:
    lengths = counts.tolist()
    check_counts(q, lengths)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    parts = (torch.split(tensor, lengths) for tensor in (q, k, v, out))
    for own_q, own_k, own_v, own_out in zip(*parts, strict=True):
        if len(own_q):
            own_out.copy_(_attend(own_q, own_k, own_v, scale, window, bias))
    return out


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int, bias: Tensor | None) -> Tensor:
    """Attends from one sequence's queries [L, H, D] over its keys and values [L, KV, D]: float64 [L, H, D]."""
    share = q.shape[1] // k.shape[1]
    keys, values = (tensor.double().transpose(0, 1).repeat_interleave(share, 0) for tensor in (k, v))
    scores = q.double().transpose(0, 1) @ keys.transpose(1, 2) * scale
    position = torch.arange(len(q), device=q.device)
    distance = position - position[:, None]
    if bias is not None:
        reach = bias.shape[1] // 2
        scores += bias.double()[:, distance.clamp(-reach, reach) + reach]
    if not window:
        return (scores.softmax(dim=2) @ values).transpose(0, 1)
    is_seen = distance.abs() <= window
    weights = scores.masked_fill_(~is_seen, -torch.inf).softmax(dim=2)
    if values.isfinite().all():
        return (weights @ values).transpose(0, 1)
    # An Inf or NaN that a query does not see must not meet its 0.
    rows = [weights[:, i, None] @ values.where(seen[:, None], 0.0) for i, seen in enumerate(is_seen)]
    return torch.cat(rows, dim=1).transpose(0, 1)
