"""Blocks of GGUF files as coded weights (https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h)."""

from collections.abc import Callable

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.system.ggml_types import GGML_TYPES, SUPER

Decode = Callable[[Tensor, int], CodedWeight]  # from blocks uint8 [N, B, bytes] and the first input's number


def _halves(packed: Tensor, width: int) -> Tensor:
    """Returns the codes of 4 bits in blocks [N, B, n], [N, B * 2 n]: each `width` bytes have as many codes in their low
    halves, and then as many in their high ones."""
    runs = packed.reshape(*packed.shape[:2], -1, 1, width)
    return torch.cat((runs & 15, runs >> 4), dim=3).reshape(len(packed), -1)


def _bits(packed: Tensor, count: int) -> Tensor:
    """Returns bit i of each byte [N, B, n] for i below `count`, [N, B, count, n]."""
    shifts = torch.arange(count, dtype=torch.uint8)
    return packed.unsqueeze(2) >> shifts[:, None] & 1


def _numbers(blocks: Tensor, at: int) -> Tensor:
    """Returns the float16 at a byte of each block, float32 [N, B]."""
    return blocks[:, :, at : at + 2].contiguous().view(torch.float16)[:, :, 0].float()


def _q4_0(blocks: Tensor, start: int) -> CodedWeight:
    codes = _halves(blocks[:, :, 2:], 16)
    return CodedWeight(codes, bits=4, group=32, scales=_numbers(blocks, 0), zero=8, start=start)


def _q4_1(blocks: Tensor, start: int) -> CodedWeight:
    codes = _halves(blocks[:, :, 4:], 16)
    return CodedWeight(codes, bits=4, group=32, scales=_numbers(blocks, 0), minima=_numbers(blocks, 2), start=start)


def _fifth_bits(packed: Tensor) -> Tensor:
    """Returns the part of the codes that the highest of 5 bits adds: packed [N, B, 4] has them from the lowest bit up.
    """
    return _bits(packed, 8).transpose(2, 3).reshape(len(packed), -1) << 4


def _q5_0(blocks: Tensor, start: int) -> CodedWeight:
    codes = _halves(blocks[:, :, 6:], 16) | _fifth_bits(blocks[:, :, 2:6])
    return CodedWeight(codes, bits=8, group=32, scales=_numbers(blocks, 0), zero=16, start=start)


def _q5_1(blocks: Tensor, start: int) -> CodedWeight:
    codes = _halves(blocks[:, :, 8:], 16) | _fifth_bits(blocks[:, :, 4:8])
    return CodedWeight(codes, bits=8, group=32, scales=_numbers(blocks, 0), minima=_numbers(blocks, 2), start=start)


def _q8_0(blocks: Tensor, start: int) -> CodedWeight:
    codes = (blocks[:, :, 2:] ^ 128).reshape(len(blocks), -1)  # a signed byte and 128
    return CodedWeight(codes, bits=8, group=32, scales=_numbers(blocks, 0), zero=128, start=start)


def _factors_and_offsets(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the 8 factors and the 8 offsets of 6 bits of each block [N, B, 12], int16 [N, 8 B] each."""
    low, middle, high = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    factors = torch.cat((low & 63, high & 15 | low >> 6 << 4), dim=2)
    offsets = torch.cat((middle & 63, high >> 4 | middle >> 6 << 4), dim=2)
    return factors.reshape(len(packed), -1).short(), offsets.reshape(len(packed), -1).short()


def _two_levels(blocks: Tensor, codes: Tensor, bits: int, start: int) -> CodedWeight:
    factors, offsets = _factors_and_offsets(blocks[:, :, 4:16])
    return CodedWeight(codes, bits=bits, group=32, scales=_numbers(blocks, 0), minima=-_numbers(blocks, 2),
                       factors=factors, offsets=offsets, span=SUPER, start=start)


def _q4_k(blocks: Tensor, start: int) -> CodedWeight:
    return _two_levels(blocks, _halves(blocks[:, :, 16:], 32), 4, start)


def _q5_k(blocks: Tensor, start: int) -> CodedWeight:
    fifth = _bits(blocks[:, :, 16:48], 8).reshape(len(blocks), -1) << 4
    return _two_levels(blocks, _halves(blocks[:, :, 48:], 32) | fifth, 8, start)


def _q6_k(blocks: Tensor, start: int) -> CodedWeight:
    outputs, count, _ = blocks.shape
    low = _halves(blocks[:, :, :128], 64).view(outputs, count, 2, 4, 32)
    pairs = blocks[:, :, 128:192].reshape(outputs, count, 2, 1, 32)
    high = pairs >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None] & 3
    codes = (low | high << 4).reshape(outputs, -1)
    factors = blocks[:, :, 192:208].contiguous().view(torch.int8).reshape(outputs, -1).short()
    return CodedWeight(codes, bits=8, group=16, scales=_numbers(blocks, 208), zero=32, factors=factors, span=SUPER,
                       start=start)


DECODERS: dict[str, Decode] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
"""By the name of a type of quantised tensors."""


def decode(kind: str, raw: Tensor, start: int) -> CodedWeight:
    """Returns rows of whole blocks, uint8 [N, bytes], as a coded weight. start: the number of the first input."""
    return DECODERS[kind](raw.reshape(len(raw), -1, GGML_TYPES[kind].num_bytes), start)
