"""What float32, float16 and bfloat16 keep of a number, and why numbers are rounded and not cut off.

    python examples/lectures/number_formats.py

A format has bits for the exponent, which decide how large and small numbers may be, and bits for the fraction, which
decide how near the next number is. float16 has 5 and 10, bfloat16 8 and 7: the range of float32 with less precision.
"""

import torch

NUMBERS = (0.0001, 1e-8, 1e5)
FORMATS = (torch.float32, torch.float16, torch.bfloat16)


def stored(number: float, dtype: torch.dtype) -> float:
    """Returns what is left of a number in a format: 0 or infinity where it is too small or too large."""
    return torch.tensor(number, dtype=torch.float64).to(dtype).item()


def cut_off(numbers: torch.Tensor) -> torch.Tensor:
    """Returns float32 numbers in bfloat16 as who drops the lower 16 bits has them."""
    return (numbers.view(torch.int32) & -65536).view(torch.float32)


def errors(numbers: torch.Tensor, kept: torch.Tensor) -> tuple[float, float]:
    """Returns the mean relative error with its sign, and without it."""
    relative = (kept.double() - numbers.double()) / numbers.double()
    return relative.mean().item(), relative.abs().mean().item()


def main() -> None:
    print(f"{'':>9}", *(f"{str(dtype).removeprefix('torch.'):>24}" for dtype in FORMATS))
    for number in NUMBERS:
        print(f"{number:9.0e}", *(f"{stored(number, dtype):24.17g}" for dtype in FORMATS))
    for name, what in (("smallest_normal", "least"), ("max", "largest"), ("eps", "step at 1")):
        print(f"{what:>9}", *(f"{getattr(torch.finfo(dtype), name):24.5g}" for dtype in FORMATS))
    numbers = torch.rand(100_000, generator=torch.Generator().manual_seed(0)) + 1
    for name, kept in (("rounded", numbers.bfloat16().float()), ("cut off", cut_off(numbers))):
        mean, size = errors(numbers, kept)
        print(f"bfloat16, {name}: mean error {mean:+.6f}, mean size of an error {size:.6f}")


if __name__ == "__main__":
    main()
