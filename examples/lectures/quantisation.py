"""Symmetric and asymmetric quantisation, with the errors that they make.

    python examples/lectures/quantisation.py

A number becomes a whole number, its code, by a scale, and by a zero where the range is not the same on both sides of 0:

    symmetric    scale = max|x| / 127              code = round(x / scale)              x ~ code * scale
    asymmetric   scale = (max - min) / 255         code = round(x / scale) + zero       x ~ (code - zero) * scale
                 zero = round(-min / scale)

Some lectures write zero = round(min / scale) beside the same code. The sign is wrong: the least number has to get the
code 0, and gets 2 min / scale.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Levels:
    """Which number each code stands for: (code - zero) * scale."""

    scale: float
    zero: int
    least: int
    largest: int

    def codes(self, x: Tensor) -> Tensor:
        """Returns the codes of numbers; those beyond the range get the last ones."""
        return (torch.round(x / self.scale) + self.zero).clamp(self.least, self.largest)

    def values(self, codes: Tensor) -> Tensor:
        return (codes - self.zero) * self.scale

    def error(self, x: Tensor) -> float:
        """Returns the mean squared error."""
        return float((self.values(self.codes(x)) - x).square().mean())


def symmetric(x: Tensor) -> Levels:
    """Returns levels of 8 bits with 0 in the middle."""
    return Levels(float(x.abs().max()) / 127, 0, -127, 127)


def asymmetric(x: Tensor, sign: int = -1) -> Levels:
    """Returns levels of 8 bits from the least number to the largest; `sign` is that of the zero."""
    scale = float(x.max() - x.min()) / 255
    return Levels(scale, round(sign * float(x.min()) / scale), 0, 255)


def samples() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(10_000, generator=generator)
    outlier = torch.cat([normal, torch.tensor([60.0])])
    return {"normal": normal, "all of one side": normal.abs() + 1, "one outlier": outlier}


def main() -> None:
    x = torch.tensor([-1.0, -0.4, 0.0, 0.3, 2.0])
    for name, levels in (("symmetric", symmetric(x)), ("asymmetric", asymmetric(x)), ("wrong sign", asymmetric(x, 1))):
        codes = levels.codes(x)
        print(f"{name:>11}: scale {levels.scale:.5f}, zero {levels.zero:4}, codes", *(f"{each:5.0f}" for each in codes),
              " values", *(f"{each:6.3f}" for each in levels.values(codes)))
    print(f"{'':>16} symmetric asymmetric wrong sign   mean squared errors")
    for name, x in samples().items():
        each = symmetric(x), asymmetric(x), asymmetric(x, 1)
        print(f"{name:>16}", *(f"{levels.error(x):10.2e}" for levels in each))


if __name__ == "__main__":
    main()
