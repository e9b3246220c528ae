"""silu_mul in torch: float64, one rounding."""

from torch import Tensor
from torch.nn import functional


def silu_mul(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.double().chunk(2, dim=1)
    return functional.silu(gate).mul_(up).to(gate_up.dtype)
