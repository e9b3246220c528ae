"""Compiling the linear kernel in all ways that it may be launched: `python -m tests.kernels.compile_linears`.

Of kernels that differ in their number of stages alone, that with the most is compiled, which needs the most memory.
Without `--every-case`, what one capability rounds to 16 bits the other keeps in float32.
"""

import sys
from dataclasses import replace

import torch

from penstock.kernels.linear import any_order, fixed_order
from penstock.kernels.linear.choices import Shape, choices
from penstock.kernels.tuning import Config
from tests.kernels.compile_only import CAPABILITIES, compiled_for

COLUMNS, INPUTS = 4096, 4096
ROWS = (64, 512)             # those of small tiles, and all others


def multiply(capability: int, is_every_case: bool) -> None:
    """Launches everything that a GPU may choose among for 16-bit numbers, with one segment and with eight."""
    weight = torch.empty(COLUMNS, INPUTS, dtype=torch.bfloat16)
    for rows in ROWS:
        x = torch.empty(rows, INPUTS, dtype=torch.bfloat16)
        for out_dtype in (torch.bfloat16, torch.float32):
            for segments in (1, 8):
                is_of_hopper = (segments == 8) == (out_dtype == torch.bfloat16)
                if not is_every_case and is_of_hopper != (capability == CAPABILITIES[-1]):
                    continue
                shape = Shape(rows, COLUMNS, INPUTS, segments, False, out_dtype == torch.float32, capability)
                for config in most_stages(choices(shape)):
                    fixed_order.matmul(x, weight, segments, None, out_dtype, config)
    for rows in (16, 32, 64):
        x = torch.empty(rows, INPUTS, dtype=torch.bfloat16)
        for config in most_stages(any_order.choices(replace(shape, rows=rows, segments=1))[1:]):
            any_order.matmul(x, weight, None, torch.bfloat16, config)


def most_stages(found: tuple[Config, ...]) -> list[Config]:
    """Those that no other has more stages than and is else the same."""
    most: dict[tuple, Config] = {}
    for config in sorted(found, key=lambda config: config["num_stages"]):
        most[tuple(sorted((name, value) for name, value in config.items() if name != "num_stages"))] = config
    return list(most.values())


def main() -> None:
    for capability in CAPABILITIES:
        with compiled_for(capability) as kernels:
            multiply(capability, "--every-case" in sys.argv)
        print(*kernels, sep="\n")


if __name__ == "__main__":
    main()
