"""The linear layer over coded weights in Triton: one program for each tile of rows and outputs and each segment.

The bits of a row depend on neither the batch nor the ranks: sums over whole numbers are exact, those over inputs as
they are have one order, and pieces are added in theirs.
"""


import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.quantised_linear.activations import LEAST, MOST, Activations
from penstock.kernels.quantised_linear.coded_data import CodedData
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.kernels.quantised_linear.pieces import cut

ROWS, INPUTS = 16, 32                    # of a tile: what matrix instructions take at least
OUTPUTS, FEWER_OUTPUTS = 64, 32          # of a tile, so that the compiler keeps all in registers; no bit rests on it
BYTE_MIDDLE = 128                        # what is subtracted from a byte so that it is signed
HALF_TO_EVEN = tl.constexpr(12582912.0)  # 1.5 * 2^23: in a sum with it a small float32 is rounded to a whole number


def pack(coded: CodedWeight, segments: int, activations: Activations) -> tuple[Tensor, ...]:
    """Returns codes, scales, minima, zeros, table, bounds, firsts and the inputs of the widest piece.

    codes [N, K], or two of 4 bits in a byte, the lower half first; scales [N, P] and minima [N, P] or [N, 0] of the
    pieces; zeros int32 [N, P], or [1, 1] where there is one for all; the table's levels [16] or [0]; of each piece its
    begin and end, int32 [P, 2]; and the first piece of each segment and their number, int32 [S + 1]. Of the
    last, [inputs, 0], only the shape counts, which the host knows without waiting for the device.
    Zeros and levels are lowered alike, so that the levels are signed bytes where they are multiplied as such.
    """
    device = coded.codes.device
    pieces = cut(coded.start, coded.in_features, coded.group, segments)
    groups = torch.tensor([piece.group for piece in pieces], dtype=torch.int64, device=device)
    scales, minima = coded.group_scales(), coded.group_minima()
    table = torch.zeros(0) if coded.table is None else coded.table
    lowered = BYTE_MIDDLE if coded.bits == 8 else 0
    if coded.table is not None and activations is Activations.INT8:
        lowered = int(table.min()) + BYTE_MIDDLE
        table = table - lowered
    zeros = torch.full((1, 1), coded.zero) if coded.zeros is None else coded.zeros[:, groups]
    bounds = torch.tensor([(piece.begin, piece.end) for piece in pieces], dtype=torch.int32, device=device)
    firsts = [sum(piece.segment < segment for piece in pieces) for segment in range(segments + 1)]
    return (_bytes_of(coded), scales[:, groups].contiguous(),
            scales[:, :0] if minima is None else minima[:, groups].contiguous(),
            (zeros - (0 if coded.table is not None and activations is Activations.FLOAT else lowered)).int().to(device),
            table.to(device), bounds.view(len(pieces), 2), torch.tensor(firsts, dtype=torch.int32, device=device),
            torch.empty(max((piece.end - piece.begin for piece in pieces), default=0), 0))


def linear(x: Tensor, packed: CodedData, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    sums = linear_apart(x, packed)
    while len(sums) > 1:
        sums = sums[0::2] + sums[1::2]
    return (sums[0] if bias is None else sums[0] + bias).to(out_dtype)


def linear_apart(x: Tensor, packed: CodedData) -> Tensor:
    codes, scales, minima, zeros, table, bounds, firsts, widest = packed.data
    (num_rows, num_inputs), num_columns, num_pieces = x.shape, packed.out_features, len(bounds)
    sums = torch.zeros(packed.segments, num_rows, num_columns, device=x.device)
    is_whole = packed.activations is Activations.INT8
    outputs = OUTPUTS if is_whole and not table.numel() else FEWER_OUTPUTS
    x_scales = x_sums = torch.empty(num_rows if is_whole else 0, num_pieces, device=x.device)
    if x.numel() and is_whole:
        whole, x_sums = torch.empty(x.shape, dtype=torch.int8, device=x.device), torch.empty_like(x_scales)
        _quantise[(num_rows, num_pieces)](x, bounds, whole, x_scales, x_sums, num_inputs, num_pieces, MOST=MOST,
                                          LEAST=LEAST, BLOCK=triton.next_power_of_2(len(widest)))
        x = whole
    if sums.numel() and num_inputs:
        grid = triton.cdiv(num_rows, ROWS), triton.cdiv(num_columns, outputs), packed.segments
        _multiply[grid](x, x_scales, x_sums, codes, scales, minima, zeros, table, bounds, firsts, sums, num_rows,
                        num_columns, num_inputs, codes.shape[1], num_pieces, IS_HALF=codes.shape[1] < num_inputs,
                        HAS_TABLE=table.numel() > 0, HAS_ZEROS=zeros.numel() > 1, HAS_MINIMA=minima.numel() > 0,
                        IS_WHOLE=is_whole, BLOCK_M=ROWS, BLOCK_N=outputs, BLOCK_K=INPUTS)
    return sums


def weight_rows(packed: CodedData, ids: Tensor) -> Tensor:
    codes, scales, minima, zeros, table, bounds, *_ = packed.data
    codes = codes[ids]
    if codes.shape[1] < packed.in_features:
        codes = torch.stack((codes & 15, codes >> 4), dim=2).flatten(1)[:, : packed.in_features]
    elif not table.numel():
        codes = codes.int() - BYTE_MIDDLE
    widths = bounds[:, 1] - bounds[:, 0]
    pieces = torch.repeat_interleave(
        torch.arange(len(bounds), device=ids.device), widths, output_size=packed.in_features)
    of_rows = zeros[ids][:, pieces] if zeros.numel() > 1 else zeros
    values = ((table[codes.long()] if table.numel() else codes.int()) - of_rows) * scales[ids][:, pieces]
    if minima.numel():
        values = values + minima[ids][:, pieces]
    return values.to(packed.dtype)


def _bytes_of(coded: CodedWeight) -> Tensor:
    """Returns the codes as the kernel reads them; those of one input alone stay bytes."""
    if coded.bits == 8 or coded.in_features == 1:
        return coded.codes
    codes = torch.nn.functional.pad(coded.codes, (0, coded.in_features % 2))
    return codes[:, 0::2] | codes[:, 1::2] << 4


@triton.jit
def _quantise(x, bounds, whole, scales, sums, num_inputs, num_pieces, MOST: tl.constexpr, LEAST: tl.constexpr,
              BLOCK: tl.constexpr):
    """Writes a piece of a row as whole numbers, its scale and its sum (activations.py)."""
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k = tl.load(bounds + 2 * piece) + tl.arange(0, BLOCK)
    is_k = k < tl.load(bounds + 2 * piece + 1)
    value = tl.load(x + row * num_inputs + k, mask=is_k, other=0.0).to(tl.float32)
    size = tl.abs(value)
    is_finite = tl.min((size < float("inf")).to(tl.int32), axis=0) == 1  # a NaN is not below either
    largest = tl.max(size)
    is_some = is_finite & (largest >= LEAST)
    inverse = tl.where(is_some, tl.div_rn(MOST, tl.where(is_some, largest, 1.0)), 0.0)
    rounded = tl.where(is_some, value * inverse, 0.0) + HALF_TO_EVEN - HALF_TO_EVEN
    tl.store(whole + row * num_inputs + k, rounded.to(tl.int8), mask=is_k)
    scale = tl.where(is_some, tl.div_rn(largest, tl.full((), MOST, tl.float32)), tl.where(is_finite, 0.0, float("nan")))
    tl.store(scales + row * num_pieces + piece, scale)
    tl.store(sums + row * num_pieces + piece, tl.sum(rounded))


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(x, x_scales, x_sums, codes, scales, minima, zeros, table, bounds, firsts, out, num_rows, num_columns,
              num_inputs, num_bytes, num_pieces, IS_HALF: tl.constexpr, HAS_TABLE: tl.constexpr,
              HAS_ZEROS: tl.constexpr, HAS_MINIMA: tl.constexpr, IS_WHOLE: tl.constexpr, BLOCK_M: tl.constexpr,
              BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Writes one segment's sums of a tile to out [S, M, N]."""
    segment = tl.program_id(2)
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    column = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    is_row, is_column = row < num_rows, column < num_columns
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for piece in range(tl.load(firsts + segment), tl.load(firsts + segment + 1)):
        begin, end = tl.load(bounds + 2 * piece), tl.load(bounds + 2 * piece + 1)
        of_piece = column.to(tl.int64) * num_pieces + piece
        zero = tl.load(zeros + of_piece, mask=is_column, other=0) if HAS_ZEROS else tl.load(zeros)
        product = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if IS_WHOLE else tl.float32)
        x_sum = tl.zeros((BLOCK_M, 1), tl.float32)
        for first in range(begin, end, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            is_k = k < end
            left = tl.load(x + row.to(tl.int64) * num_inputs + k[None, :], mask=is_row & is_k[None, :], other=0)
            at = k // 2 if IS_HALF else k
            code = tl.load(codes + column.to(tl.int64) * num_bytes + at[:, None], mask=is_column & is_k[:, None],
                           other=0).to(tl.int32)
            if IS_HALF:
                code = (code >> (k % 2 * 4)[:, None]) & 15
            level = tl.load(table + code) if HAS_TABLE else code if IS_HALF else code - 128
            if IS_WHOLE:
                product = tl.dot(left, level.to(tl.int8), product, out_dtype=tl.int32)
            else:
                left = left.to(tl.float32)
                product = tl.dot(left, (level - zero).to(tl.float32), product, input_precision="ieee")
                x_sum += tl.sum(left, axis=1)[:, None]
        scale = tl.load(scales + of_piece, mask=is_column, other=0.0)
        minimum = tl.load(minima + of_piece, mask=is_column, other=0.0) if HAS_MINIMA else scale
        if IS_WHOLE:
            of_row = row.to(tl.int64) * num_pieces + piece
            x_scale = tl.load(x_scales + of_row, mask=is_row, other=0.0)
            x_sum = tl.load(x_sums + of_row, mask=is_row, other=0.0)
            exact = (product - zero * x_sum.to(tl.int32)).to(tl.float32)
            if HAS_MINIMA:
                total = tl.fma(tl.fma(exact, scale, x_sum * minimum), x_scale, total)
            else:
                total = tl.fma(exact * x_scale, scale, total)
        else:
            total = tl.fma(product, scale, total)
            if HAS_MINIMA:
                total = tl.fma(x_sum, minimum, total)
    tl.store(out + (segment * num_rows + row).to(tl.int64) * num_columns + column, total, mask=is_row & is_column)
