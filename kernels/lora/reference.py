"""Adapters in torch: float64 sums of products, of which each segment's is rounded to float32."""

import torch
from torch import Tensor

from penstock.kernels.lora.adapter import PANEL, LoraWeight
from penstock.kernels.lora.rows import AdapterRows


def shrink(x: Tensor, rows: AdapterRows, site: int) -> Tensor:
    out = torch.zeros(len(x), rows.rank(site), device=x.device)
    for group, weight in enumerate(rows.weights(site)):
        own = torch.nonzero(rows.groups == group)[:, 0]
        if weight is not None and len(own):
            out[own, : weight.rank] = _shrink(x[own], weight)
    return out


def expand(shrunk: Tensor, rows: AdapterRows, site: int, out_features: int) -> Tensor:
    out = torch.full((len(shrunk), out_features), -0.0, device=shrunk.device)
    for group, weight in enumerate(rows.weights(site)):
        own = torch.nonzero(rows.groups == group)[:, 0]
        if weight is not None and len(own):
            out[own] = _expand(shrunk[own, : weight.rank], weight)
    return out


def _shrink(x: Tensor, weight: LoraWeight) -> Tensor:
    sums = []
    for segment in range(weight.segments):
        own = x[:, segment * weight.width : (segment + 1) * weight.width].double()
        a = weight.a[:, segment].permute(0, 2, 1, 3).reshape(weight.rank, -1)[:, : own.shape[1]]
        sums.append((own @ a.double().t()).float())
    total = torch.stack(sums)
    while len(total) > 1:
        total = total[0::2] + total[1::2]
    return total[0]


def _expand(shrunk: Tensor, weight: LoraWeight) -> Tensor:
    scaled = (shrunk * weight.scales).double()
    out = torch.empty(len(shrunk), -(-weight.out_features // PANEL) * PANEL, device=shrunk.device)
    depth = weight.a.shape[-1]
    for panel, (first, count, offset) in enumerate(weight.panels.tolist()):
        b = weight.b[offset : offset + count * PANEL].view(-1, PANEL, depth).transpose(1, 2).reshape(count, PANEL)
        own = scaled[:, first : first + count] @ b.double()
        out[:, panel * PANEL : (panel + 1) * PANEL] = own.float() if count else -0.0
    return out[:, : weight.out_features]
