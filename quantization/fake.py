"""Fake quantisation, an example for fine-tuning: a linear that computes with rounded weights and learns plain ones.

The gradient goes straight through the rounding, as if it were not there (Bengio et al. 2013), so that the weights learn
to lie where rounding does little harm. `penstock quantize --method rtn` then gives the same levels.
"""

from torch import Tensor, nn

from penstock.shard.weights.rounding import round_to_nearest


class FakeQuantisedLinear(nn.Module):
    """Stands for an nn.Linear while it is trained."""

    def __init__(self, linear: nn.Linear, bits: int = 4, group: int = 32) -> None:
        super().__init__()
        self.linear, self.bits, self.group = linear, bits, group

    def forward(self, x: Tensor) -> Tensor:
        """Multiplies x [..., K] by the rounded weight: [..., N]."""
        weight = self.linear.weight
        rounded = round_to_nearest(weight.detach(), self.bits, self.group, symmetric=True).dequantise()
        straight_through = weight + (rounded.to(weight.dtype) - weight).detach()
        return nn.functional.linear(x, straight_through, self.linear.bias)


def replace_linears(module: nn.Module, bits: int = 4, group: int = 32) -> None:
    """Puts a fake quantised linear in the place of each linear below a module."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, FakeQuantisedLinear(child, bits, group))
        else:
            replace_linears(child, bits, group)
