"""Coded weights of every kind, with random codes."""

from dataclasses import dataclass

import torch

from penstock.kernels.quantised_linear.coded_weight import CodedWeight, num_groups

NF4 = (-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803, 0.1609302,
       0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0)
E2M1 = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0)  # in halves


@dataclass(frozen=True)
class Kind:
    """What a format's weights are made of."""

    bits: int
    group: int
    zero: int = 0
    has_zeros: bool = False
    has_minima: bool = False
    span: int = 0
    table: tuple[float, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Tells whether the levels are whole numbers, which activations in 8 bits need."""
        return all(level == int(level) for level in self.table)


KINDS = {
    "q4_0": Kind(4, 32, zero=8),
    "q4_1": Kind(4, 32, has_minima=True),
    "q5_1": Kind(8, 32, has_minima=True),
    "q8_0": Kind(8, 32, zero=128),
    "q4_k": Kind(4, 32, has_minima=True, span=256),
    "q5_k": Kind(8, 32, has_minima=True, span=256),
    "q6_k": Kind(8, 16, zero=32, span=256),
    "awq": Kind(4, 128, has_zeros=True),
    "gptq8": Kind(8, 64, has_zeros=True),
    "w4_channel": Kind(4, 1 << 20, zero=8),
    "w8_channel": Kind(8, 1 << 20, zero=128),
    "nf4": Kind(4, 64, table=NF4),
    "mxfp4": Kind(4, 32, table=E2M1),
}


def make(name: str, outputs: int, inputs: int, seed: int = 0) -> CodedWeight:
    """Makes a weight of a kind; scales are float16 numbers, as files have them."""
    kind, generator = KINDS[name], torch.Generator().manual_seed(seed)  # a processor's, for the same numbers everywhere
    device = torch.get_default_device()

    def numbers(count: int, low: float, high: float) -> torch.Tensor:
        shares = torch.rand(outputs, count, generator=generator, device="cpu")
        return (shares * (high - low) + low).half().float().to(device)

    def whole(count: int, low: int, high: int, dtype: torch.dtype = torch.int16) -> torch.Tensor:
        return torch.randint(low, high, (outputs, count), generator=generator, device="cpu").to(dtype).to(device)

    groups, coarse = num_groups(0, inputs, kind.group), num_groups(0, inputs, kind.span or kind.group)
    most = 32 if name.startswith("q5") else 64 if name == "q6_k" else 2**kind.bits
    signed = name == "q6_k"
    return CodedWeight(
        codes=whole(inputs, 0, most, torch.uint8), bits=kind.bits, group=kind.group, zero=kind.zero, span=kind.span,
        scales=numbers(coarse, 0.001, 0.01) / (32 if kind.span else 1),
        zeros=whole(groups, 0, min(2**kind.bits + 1, 256)) if kind.has_zeros else None,
        table=torch.tensor(kind.table) if kind.table else None,
        minima=numbers(coarse, -0.1, 0) / (32 if kind.span else 1) if kind.has_minima else None,
        factors=(whole(groups, -128, 128) if signed else whole(groups, 0, 64)) if kind.span else None,
        offsets=whole(groups, 0, 64) if kind.span and kind.has_minima else None)
