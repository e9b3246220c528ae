"""The recurrence in torch, in float64, token by token; the state between steps is float32."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from penstock.kernels.recurrence.heads import NORM_EPS, RecurrentHeads
from penstock.kernels.recurrent_state import StateRows


def recurrence(
    qkv: Tensor, steps: Tensor, gates: Tensor | None, heads: RecurrentHeads, matrices: Tensor, rows: StateRows
) -> Tensor:
    keys, share = heads.num_groups * heads.key_dim, heads.num_heads // heads.num_groups
    q, k, v = torch.split(qkv.double(), [keys, keys, heads.num_heads * heads.value_dim], dim=1)
    groups = len(qkv), heads.num_groups, heads.key_dim
    q, k = (_of_heads(part.reshape(groups), share, heads.is_delta) for part in (q, k))
    if heads.is_delta:
        q = q / heads.key_dim**0.5
    v = v.reshape(len(qkv), heads.num_heads, heads.value_dim)
    step = softplus(steps.double() + heads.bias, threshold=100.0).clamp(heads.min_step, heads.max_step)
    decay = (step * heads.rate).exp()
    weight = step if gates is None else gates.double().sigmoid()
    out = torch.empty_like(v)
    for slot, start, begin, end in rows.spans():
        state = matrices[slot] if start else torch.zeros_like(matrices[slot])
        for token in range(begin, end):  # [H, K, D]
            state = state.double() * decay[token][:, None, None]
            known = torch.einsum("hkd,hk->hd", state, k[token]) if heads.is_delta else 0.0
            written = (v[token] - known) * weight[token][:, None]
            state = state + k[token][:, :, None] * written[:, None]
            out[token] = torch.einsum("hkd,hk->hd", state, q[token])
            state = state.float()
        matrices[slot] = state
    if heads.skip is not None:
        out += v * heads.skip[:, None]
    return out.to(qkv.dtype)


def _of_heads(groups: Tensor, share: int, is_normalised: bool) -> Tensor:
    """Returns q or k [T, G, K] for each head, [T, H, K]."""
    if is_normalised:
        groups = groups * (groups.square().sum(dim=2, keepdim=True) + NORM_EPS).rsqrt()
    return groups.repeat_interleave(share, dim=1)
