"""A mixture of experts in Triton: rows, each a token at one of its experts, are sorted by expert and computed together.

No size depends on the choices, so that nothing waits for them: there are programs for as many tiles as any choices can
make, and those that are too many end at once. A tile has rows of one expert, in one shape for all numbers of tokens; a
sum over k is added by one matrix instruction after the other, as linear/fixed_order.py does. So a row's bits depend on
no other. Where nobody asks for the bit contract, a down projection is one segment.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.activation.gpu import gated
from penstock.kernels.experts import reference
from penstock.kernels.experts.weights import ExpertWeights
from penstock.kernels.linear import DenseWeight, PackedWeight

BLOCK_M = 64                 # the rows that Hopper's wgmma takes
BLOCK_N = 64                 # of a gate and of what it is for, each; twice as many of the outputs
SUMS = 64 << 20              # numbers of each segment and row that are held at a time
MAX_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Grouped:
    """The weights of all experts, in one piece of memory each, and where those of an expert are."""

    gate_up: Tensor
    down: Tensor
    gate_up_at: Tensor                   # int64 [E]
    down_at: Tensor
    inner: Tensor                        # int32 [E]
    most_inner: int
    alignment: int                       # of all places, in numbers


def prepare(layer: ExpertWeights) -> Grouped | None:
    """Returns dense weights of one dtype as the kernels want them; None of others. The layer's become parts of these,
    so that they are held once."""
    gate_up, down = _dense(layer.gate_up), _dense(layer.down)
    if len(gate_up) + len(down) != 2 * len(layer.down) or len({weight.dtype for weight in (*gate_up, *down)}) != 1:
        return None
    whole, places = _join(gate_up), _places(gate_up)
    whole_down, down_places = _join(down), _places(down)
    object.__setattr__(layer, "gate_up", _parts(gate_up, whole, places))
    object.__setattr__(layer, "down", _parts(down, whole_down, down_places))
    inner, device = [weight.in_features for weight in down], whole.device
    alignment = math.gcd(MAX_ALIGNMENT, gate_up[0].in_features, *(each // layer.segments for each in inner))
    return Grouped(whole, whole_down, torch.tensor(places, device=device), torch.tensor(down_places, device=device),
                   torch.tensor(inner, dtype=torch.int32, device=device), max(inner), alignment)


def experts(x: Tensor, ids: Tensor, weights: Tensor, layer: ExpertWeights, out_dtype: torch.dtype) -> Tensor:
    grouped = layer.prepared
    if not isinstance(grouped, Grouped):
        return reference.experts(x, ids, weights, layer, out_dtype)
    out = torch.empty(len(x), layer.down[0].out_features, dtype=out_dtype, device=x.device)
    segments = layer.segments if dispatch.is_deterministic() else 1
    together = max(1, SUMS // (segments * ids.shape[1] * out.shape[1]))
    for begin in range(0, len(x), together):
        part = slice(begin, begin + together)
        _add(x[part], ids[part], weights[part], layer, grouped, segments, out[part])
    return out


def _add(
    x: Tensor, ids: Tensor, weights: Tensor, layer: ExpertWeights, grouped: Grouped, segments: int, out: Tensor
) -> None:
    (num_tokens, top_k), num_experts, width = ids.shape, len(grouped.inner), out.shape[1]
    num_rows = num_tokens * top_k
    sorted_ids, order = torch.sort(ids.flatten(), stable=True)
    numbers = torch.arange(num_experts + 1, dtype=torch.int32, device=ids.device)
    firsts = torch.searchsorted(sorted_ids, numbers, out_int32=True)
    tiles = torch.cumsum((firsts.diff() + BLOCK_M - 1) // BLOCK_M, 0, dtype=torch.int32)  # up to each expert's end
    num_tiles = num_rows // BLOCK_M + min(num_experts, num_rows)
    same = {"NUM_EXPERTS": num_experts, "EXPERTS": triton.next_power_of_2(num_experts), "ALIGNMENT": grouped.alignment,
            "BLOCK_M": BLOCK_M, "BLOCK_K": 64 if x.dtype == grouped.down.dtype != torch.float32 else 32,
            "num_warps": 8}
    inner = torch.empty(num_rows, grouped.most_inner, dtype=x.dtype, device=x.device)
    bias = layer.gate_up_bias
    _gates[(num_tiles, triton.cdiv(grouped.most_inner, BLOCK_N))](
        x, order, firsts, tiles, grouped.gate_up, grouped.gate_up_at, grouped.inner, bias, inner, x.shape[1],
        grouped.most_inner, TOP_K=top_k, HAS_BIAS=bias is not None, ACTIVATION=str(layer.activation), BLOCK_N=BLOCK_N,
        **same)
    sums = torch.empty(segments, num_rows, width, dtype=torch.float32, device=x.device)
    _downs[(num_tiles, triton.cdiv(width, 2 * BLOCK_N), segments)](
        inner, order, firsts, tiles, grouped.down, grouped.down_at, grouped.inner, sums, num_rows, width,
        grouped.most_inner, SEGMENTS=segments, BLOCK_N=2 * BLOCK_N, **same)
    block = min(1024, triton.next_power_of_2(width))
    _add_choices[(num_tokens, triton.cdiv(width, block))](
        sums, weights, out, num_rows, width, TOP_K=top_k, SEGMENTS=segments, BLOCK=block)


def _dense(weights: Sequence[PackedWeight]) -> list[DenseWeight]:
    return [weight for weight in weights if isinstance(weight, DenseWeight)]


def _join(weights: list[DenseWeight]) -> Tensor:
    return torch.cat([weight.data.flatten() for weight in weights])


def _parts(weights: list[DenseWeight], whole: Tensor, places: list[int]) -> tuple[DenseWeight, ...]:
    return tuple(replace(weight, data=whole[place : place + weight.data.numel()].view_as(weight.data))
                 for weight, place in zip(weights, places, strict=True))


def _places(weights: list[DenseWeight]) -> list[int]:
    """Returns where each weight begins, in numbers."""
    places = [0]
    for weight in weights[:-1]:
        places.append(places[-1] + weight.data.numel())
    return places


@triton.jit
def _find_tile(firsts, tiles, NUM_EXPERTS: tl.constexpr, EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr):
    """Returns the expert of this program's tile, NUM_EXPERTS if there is none, its first row and the expert's end."""
    tile, number = tl.program_id(0), tl.arange(0, EXPERTS)
    ends = tl.load(tiles + number, mask=number < NUM_EXPERTS, other=0x7FFFFFFF)
    expert = tl.sum((ends <= tile).to(tl.int32), axis=0)
    before = tl.max(tl.where(ends <= tile, ends, 0), axis=0)
    first, end = 0, 0
    if expert < NUM_EXPERTS:
        first = tl.load(firsts + expert) + (tile - before) * BLOCK_M
        end = tl.load(firsts + expert + 1)
    return expert, first, end


@triton.jit
def _product(left, right, total):
    if left.dtype != right.dtype:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, total, input_precision="ieee")


@triton.jit
def _gates(x, order, firsts, tiles, weight, weight_at, inner_widths, bias, out, num_inputs, out_stride,
           TOP_K: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr, NUM_EXPERTS: tl.constexpr,
           EXPERTS: tl.constexpr, ALIGNMENT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           BLOCK_K: tl.constexpr):
    """Writes of sorted rows what their experts' gates let through."""
    expert, first, end = _find_tile(firsts, tiles, NUM_EXPERTS, EXPERTS, BLOCK_M)
    if expert < NUM_EXPERTS:
        inner = tl.load(inner_widths + expert)
        row = (first + tl.arange(0, BLOCK_M))[:, None]
        column = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
        is_row, is_column = row < end, column < inner
        token = tl.load(order + row, mask=is_row, other=0) // TOP_K
        k = tl.arange(0, BLOCK_K)
        left_at = x + token * num_inputs + k[None, :]
        gate_at = (weight + tl.multiple_of(tl.load(weight_at + expert), ALIGNMENT)
                   + column.to(tl.int64) * num_inputs + k[:, None])
        up_at = gate_at + inner.to(tl.int64) * num_inputs
        gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, num_inputs, BLOCK_K):
            is_k = start + k < num_inputs
            left = tl.load(left_at + start, mask=is_row & is_k[None, :], other=0.0)
            is_weight = is_column & is_k[:, None]
            gate = _product(left, tl.load(gate_at + start, mask=is_weight, other=0.0), gate)
            up = _product(left, tl.load(up_at + start, mask=is_weight, other=0.0), up)
        if HAS_BIAS:
            bias_at = bias + expert * 2 * inner + column
            gate += tl.load(bias_at, mask=is_column, other=0.0).to(tl.float32)
            up += tl.load(bias_at + inner, mask=is_column, other=0.0).to(tl.float32)
        dtype: tl.constexpr = out.dtype.element_ty  # to which the linear rounds
        value = gated(gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), ACTIVATION)
        tl.store(out + row.to(tl.int64) * out_stride + column, value.to(dtype), mask=is_row & is_column)


@triton.jit(do_not_specialize=["num_rows"])
def _downs(inner, order, firsts, tiles, weight, weight_at, inner_widths, sums, num_rows, num_columns, inner_stride,
           SEGMENTS: tl.constexpr, NUM_EXPERTS: tl.constexpr, EXPERTS: tl.constexpr, ALIGNMENT: tl.constexpr,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Writes to sums [S, T * k, N], of each token's choices one after the other, the sums of one segment."""
    expert, first, end = _find_tile(firsts, tiles, NUM_EXPERTS, EXPERTS, BLOCK_M)
    if expert < NUM_EXPERTS:
        num_inputs = tl.multiple_of(tl.load(inner_widths + expert), ALIGNMENT)
        width = tl.multiple_of(num_inputs // SEGMENTS, ALIGNMENT)
        segment = tl.program_id(2)
        row = (first + tl.arange(0, BLOCK_M))[:, None]
        column = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
        is_row, is_column = row < end, column < num_columns
        k = tl.arange(0, BLOCK_K)
        left_at = inner + row.to(tl.int64) * inner_stride + segment * width + k[None, :]
        right_at = (weight + tl.multiple_of(tl.load(weight_at + expert), ALIGNMENT)
                    + column.to(tl.int64) * (width * SEGMENTS) + segment * width + k[:, None])
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, width, BLOCK_K):
            is_k = start + k < width
            left = tl.load(left_at + start, mask=is_row & is_k[None, :], other=0.0)
            right = tl.load(right_at + start, mask=is_column & is_k[:, None], other=0.0)
            total = _product(left, right, total)
        place = segment.to(tl.int64) * num_rows + tl.load(order + row, mask=is_row, other=0)
        tl.store(sums + place * num_columns + column, total, mask=is_row & is_column)


@triton.jit
def _tree(sums, weights, size, num_columns, is_column, TOP_K: tl.constexpr, SEGMENTS: tl.constexpr,
          BLOCK: tl.constexpr):
    """Adds the choices of each segment times their weights, in their order, then the segments."""
    if SEGMENTS == 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for choice in range(TOP_K):
            product = tl.load(sums + choice * num_columns, mask=is_column, other=0.0)
            total = tl.fma(product, tl.load(weights + choice), total)
    else:
        HALF: tl.constexpr = SEGMENTS // 2
        total = (_tree(sums, weights, size, num_columns, is_column, TOP_K, HALF, BLOCK)
                 + _tree(sums + HALF * size, weights, size, num_columns, is_column, TOP_K, HALF, BLOCK))
    return total


@triton.jit(do_not_specialize=["num_rows"])
def _add_choices(sums, weights, out, num_rows, num_columns, TOP_K: tl.constexpr, SEGMENTS: tl.constexpr,
                 BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < num_columns
    total = _tree(sums + token * TOP_K * num_columns + column, weights + token * TOP_K,
                  num_rows.to(tl.int64) * num_columns, num_columns, is_column, TOP_K, SEGMENTS, BLOCK)
    tl.store(out + token * num_columns + column, total.to(out.dtype.element_ty), mask=is_column)
