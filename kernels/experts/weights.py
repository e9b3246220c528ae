"""The weights of a mixture of experts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from penstock.kernels.activation import Activation
from penstock.kernels.checks import FLOATS, check_tensor
from penstock.kernels.linear import PackedWeight


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The weights of E experts; their inner widths I may differ."""

    gate_up: Sequence[PackedWeight]      # of each [2 * I, C]: of the gate and of what it gates, one below the other
    down: Sequence[PackedWeight]         # of each [N, I], in as many segments as of the others
    activation: Activation
    gate_up_bias: Tensor | None = None   # [E, 2 * I], of experts of one width
    prepared: object = field(init=False, repr=False, compare=False)  # what the kernels make of them once

    def check(self) -> None:
        """Raises ValueError for weights that do not fit together."""
        if not self.gate_up or len(self.gate_up) != len(self.down):
            raise ValueError(f"Experts: {len(self.gate_up)} weights of gates, {len(self.down)} behind them")
        first, last = self.gate_up[0], self.down[0]
        for number, (gate_up, down) in enumerate(zip(self.gate_up, self.down, strict=True)):
            found = [gate_up.out_features, gate_up.in_features, down.out_features, down.in_features, down.segments]
            expected = [2 * down.in_features, first.in_features, last.out_features, down.in_features, last.segments]
            if found != expected:
                raise ValueError(f"Experts: expert {number} has the sizes {found}, expected {expected}")
        if self.gate_up_bias is not None:
            check_tensor("Experts", "gate_up_bias", self.gate_up_bias, (len(self.down), first.out_features), *FLOATS)
            if any(gate_up.out_features != first.out_features for gate_up in self.gate_up):
                raise ValueError("Experts: there is a bias for experts of several widths")

    @property
    def segments(self) -> int:
        return self.down[0].segments
