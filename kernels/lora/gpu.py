"""Adapters in Triton: a program for a row and some outputs of its own adapter's matrix, which lies at an address."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.lora.adapter import FIELDS, PANEL
from penstock.kernels.lora.rows import AdapterRows

_RANK, _A, _B, _PANELS, _SCALES, _SEGMENTS, _WIDTH = (
    FIELDS.index(name) for name in ("rank", "a", "b", "panels", "scales", "segments", "width"))
NUM_FIELDS = len(FIELDS)
BLOCK_K = 128
BLOCK_PANELS = 16                        # of B in one program


@triton.jit
def _shrink(x, groups, table, out, num_inputs, num_rows, site, num_sites, rank, DTYPE: tl.constexpr,
            DEPTH: tl.constexpr, FIELDS: tl.constexpr, RANK: tl.constexpr, A: tl.constexpr, SEGMENTS: tl.constexpr,
            WIDTH: tl.constexpr, PANEL: tl.constexpr, BLOCK_K: tl.constexpr):
    row, panel, segment = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    lane, k = tl.arange(0, PANEL), tl.arange(0, BLOCK_K)
    total = tl.zeros((PANEL,), tl.float32)
    group = tl.load(groups + row).to(tl.int64)
    if group >= 0:
        own = table + (group * num_sites + site) * FIELDS
        segments, width = tl.load(own + SEGMENTS), tl.load(own + WIDTH)
        if (panel * PANEL < tl.load(own + RANK)) & (segment < segments):
            steps = (width + DEPTH - 1) // DEPTH
            a = tl.load(own + A).to(tl.pointer_type(DTYPE)) + (panel * segments + segment) * steps * PANEL * DEPTH
            begin = segment * width
            end = tl.minimum(width, num_inputs - begin)
            numbers = x + row.to(tl.int64) * num_inputs + begin
            for first in range(0, end, BLOCK_K):
                at = first + k
                is_k = at < end
                left = tl.load(numbers + at, mask=is_k, other=0.0).to(tl.float32)
                place = (at // DEPTH)[None, :] * PANEL * DEPTH + lane[:, None] * DEPTH + (at % DEPTH)[None, :]
                right = tl.load(a + place, mask=is_k[None, :], other=0.0).to(tl.float32)
                total += tl.sum(left[None, :] * right, axis=1)
    tl.store(out + (segment * num_rows + row).to(tl.int64) * rank + panel * PANEL + lane, total)


@triton.jit
def _expand(shrunk, groups, table, out, num_outputs, site, num_sites, rank, DTYPE: tl.constexpr, DEPTH: tl.constexpr,
            FIELDS: tl.constexpr, RANK: tl.constexpr, B: tl.constexpr, PANELS: tl.constexpr, SCALES: tl.constexpr,
            PANEL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    panel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, PANEL)
    is_panel = panel * PANEL < num_outputs
    group = tl.load(groups + row).to(tl.int64)
    if group >= 0:
        own = table + (group * num_sites + site) * FIELDS
        if tl.load(own + RANK) > 0:
            panels = tl.load(own + PANELS).to(tl.pointer_type(tl.int64)) + 3 * panel
            first = tl.load(panels, mask=is_panel, other=0)
            count = tl.load(panels + 1, mask=is_panel, other=0)
            b = tl.load(own + B).to(tl.pointer_type(DTYPE)) + tl.load(panels + 2, mask=is_panel, other=0)
            scales = tl.load(own + SCALES).to(tl.pointer_type(tl.float32))
            total = tl.zeros((BLOCK, PANEL), tl.float32)
            for j in range(0, tl.max(count, axis=0)):
                is_rank = j < count
                scaled = tl.load(shrunk + row.to(tl.int64) * rank + first + j, mask=is_rank, other=0.0) * tl.load(
                    scales + first + j, mask=is_rank, other=0.0)
                place = (j // DEPTH) * PANEL * DEPTH + lane[None, :] * DEPTH + j % DEPTH
                right = tl.load(b[:, None] + place, mask=is_rank[:, None], other=0.0).to(tl.float32)
                total = tl.where(is_rank[:, None], total + scaled[:, None] * right, total)
            # What an adapter has nothing for stays -0.
            column = panel[:, None] * PANEL + lane[None, :]
            tl.store(out + row.to(tl.int64) * num_outputs + column, total,
                     mask=(column < num_outputs) & (count > 0)[:, None])


def shrink(x: Tensor, rows: AdapterRows, site: int) -> Tensor:
    rank = rows.rank(site)
    weights = [weight for weight in rows.weights(site) if weight is not None]
    segments = max((weight.segments for weight in weights), default=1)
    sums = torch.zeros(segments, len(x), rank, dtype=torch.float32, device=x.device)
    if sums.numel():
        _shrink[(len(x), rank // PANEL, segments)](
            x, rows.groups, rows.table, sums, x.shape[1], len(x), site, rows.table.shape[1], rank,
            **_kind(weights[0].a), FIELDS=NUM_FIELDS, RANK=_RANK, A=_A, SEGMENTS=_SEGMENTS, WIDTH=_WIDTH, PANEL=PANEL,
            BLOCK_K=BLOCK_K)
    while len(sums) > 1:
        sums = sums[0::2] + sums[1::2]
    return sums[0]


def expand(shrunk: Tensor, rows: AdapterRows, site: int, out_features: int) -> Tensor:
    out = torch.full((len(shrunk), out_features), -0.0, dtype=torch.float32, device=shrunk.device)
    weights = [weight for weight in rows.weights(site) if weight is not None]
    if out.numel() and weights:
        _expand[(len(shrunk), triton.cdiv(out_features, PANEL * BLOCK_PANELS))](
            shrunk, rows.groups, rows.table, out, out_features, site, rows.table.shape[1], shrunk.shape[1],
            **_kind(weights[0].a), FIELDS=NUM_FIELDS, RANK=_RANK, B=_B, PANELS=_PANELS, SCALES=_SCALES, PANEL=PANEL,
            BLOCK=BLOCK_PANELS)
    return out


def _kind(a: Tensor) -> dict[str, Any]:
    return {"DTYPE": {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[a.dtype],
            "DEPTH": a.shape[-1]}
