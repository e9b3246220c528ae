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
    b = torch.zeros(weight.rank, len(weight.panels), PANEL, dtype=torch.float64, device=shrunk.device)
    depth = weight.a.shape[-1]
    for panel, (first, count, offset) in enumerate(weight.panels.tolist()):
        lanes = weight.b[offset : offset + count * PANEL].view(-1, PANEL, depth)
        b[first : first + count, panel] = lanes.transpose(1, 2).reshape(count, PANEL).double()
    total = torch.zeros(len(shrunk), len(weight.panels), PANEL, dtype=torch.float64, device=shrunk.device)
    for own, row in zip(scaled.unbind(1), b, strict=True):  # in one order, whatever panels read beside it
        total += own[:, None, None] * row
    # By output, not by panel: how the linear is dealt out to ranks decides which parts of it meet within a panel.
    out = torch.where((b != 0).any(dim=0), total.float(), -0.0)
    return out.flatten(1)[:, : weight.out_features]
