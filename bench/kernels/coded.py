"""Coded weights with random codes, for speed does not depend on the values."""

from dataclasses import dataclass

import torch

from penstock.kernels.quantised_linear import QuantisedWeight, pack_coded
from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight, num_groups


@dataclass(frozen=True, slots=True)
class Kind:
    """The parts of which a format's weights are made."""

    bits: int
    group: int
    has_zeros: bool = False
    has_minima: bool = False
    span: int = 0
    activations: Activations = Activations.INT8


CHANNEL = 1 << 30
"""A group of all inputs."""
CODED = {
    "w4g32": Kind(4, 32),
    "w4g128": Kind(4, 128),
    "w4g128z": Kind(4, 128, has_zeros=True),
    "w4a16": Kind(4, 128, activations=Activations.FLOAT),
    "q4_1": Kind(4, 32, has_minima=True),
    "q4_k": Kind(4, 32, has_minima=True, span=256),
    "q6_k": Kind(8, 16, span=256),
    "w8g32": Kind(8, 32),
    "w8": Kind(8, CHANNEL),
}
HEAD = Kind(8, 32)
"""Of weights of 4 bits, as in most files."""


def coded(name: str, outputs: int, inputs: int, segments: int, is_head: bool) -> QuantisedWeight:
    """Returns a weight of this kind, packed."""
    kind = HEAD if is_head and CODED[name].bits == HEAD.bits // 2 else CODED[name]
    groups, coarse = num_groups(0, inputs, kind.group), num_groups(0, inputs, kind.span or kind.group)

    def whole(count: int) -> torch.Tensor:
        return torch.randint(0, 16, (outputs, count), dtype=torch.int16)

    weight = CodedWeight(
        codes=torch.randint(0, 2**kind.bits, (outputs, inputs), dtype=torch.uint8), bits=kind.bits, group=kind.group,
        scales=torch.full((outputs, coarse), 2.0**-10), zero=2 ** (kind.bits - 1), span=kind.span,
        zeros=whole(groups) if kind.has_zeros else None, factors=whole(groups) if kind.span else None,
        minima=torch.full((outputs, coarse), 2.0**-10) if kind.has_minima else None,
        offsets=whole(groups) if kind.span and kind.has_minima else None)
    return pack_coded(weight, segments, kind.activations, torch.bfloat16)
