"""The common parts of formats in which several codes share a word, and several inputs a scale."""

import torch
from torch import Tensor

from penstock.shard.weights.format import LinearPart

WORD_BITS = 32
HALVES = 0x0F0F


def per_word(bits: int) -> int:
    """Returns how many codes a word of 32 bits has."""
    return WORD_BITS // bits


def units(part: slice, size: int) -> slice:
    """Returns the units of `size` numbers that have any of the part's."""
    return slice(part.start // size, -(-part.stop // size))


def groups(part: slice, group: int) -> slice:
    """Returns the groups of inputs that have any of the part's; 0 stands for one group of all inputs."""
    return units(part, group) if group else slice(0, 1)


def num_units(length: int, size: int) -> int:
    return -(-length // size) if size else 1


def codes_of_words(words: Tensor, bits: int) -> Tensor:
    """Returns the codes of 4 or 8 bits in words, int32 [A, W], from the lowest bits up: uint8 [A, W * 32 / bits]."""
    if words.stride(1) != 1:             # which torch calls contiguous if there is one word
        words = words.clone(memory_format=torch.contiguous_format)
    packed = words.view(torch.uint8)
    return packed if bits == 8 else low_then_high(packed)


def low_then_high(packed: Tensor) -> Tensor:
    """Returns the two codes of 4 bits in each byte [A, B], that of the low bits first: [A, 2 B]."""
    wide = packed.short()                # two bytes for each, of which the first is the low one
    return (wide << 4).bitwise_or_(wide).bitwise_and_(HALVES).view(torch.uint8)


def high_then_low(packed: Tensor) -> Tensor:
    """Returns the two codes of 4 bits in each byte [A, B], that of the high bits first: [A, 2 B]."""
    wide = packed.short()
    return (wide << 8).bitwise_or_(wide >> 4).bitwise_and_(HALVES).view(torch.uint8)


def within(unpacked: Tensor, part: slice, size: int) -> Tensor:
    """Returns the part [P, ...] of a tensor that begins at the unit of `size` in which the part does."""
    first = part.start % size
    return unpacked[first : first + part.stop - part.start]


def finite(name: str, scales: Tensor) -> Tensor:
    """Returns scales as float32, contiguous, though a rank's part may be a column of a larger tensor. Raises ValueError
    if there are others than numbers."""
    scales = scales.float().contiguous()
    wrong = scales.numel() - int(torch.isfinite(scales).sum())
    if wrong:
        raise ValueError(f"{name}: {wrong} of {scales.numel()} numbers are NaN or infinite")
    return scales


def one_zero(zeros: Tensor) -> int | None:
    """Returns the zero that all groups have, or None if they differ."""
    first = int(zeros.flatten()[0])
    return first if bool((zeros == first).all()) else None


def input_order(name: str, group_of_inputs: Tensor, part: LinearPart, group: int) -> Tensor | None:
    """Returns the inputs in the order of their groups, int64 [K], or None if they already are.

    group_of_inputs: int32 [K], of all inputs, or empty if they are in order. Raises ValueError if the groups are not
    of `group` inputs, and if they mix inputs of several ranks.
    """
    expected = torch.arange(part.in_features) // (group or part.in_features)
    if not group_of_inputs.numel() or torch.equal(group_of_inputs.long(), expected):
        return None
    order = torch.argsort(group_of_inputs, stable=True)
    if not torch.equal(group_of_inputs[order].long(), expected):
        raise ValueError(f"{name}: groups of other sizes than {group}")
    if part.columns != slice(0, part.in_features):
        raise ValueError(f"{name}: its groups (desc_act) mix inputs of several shards; one shard can compute it, or "
                         "more with a checkpoint that was quantised without desc_act")
    return order
