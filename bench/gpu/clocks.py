"""How fast the device's clocks run, how warm it is, and what holds it back, as its driver says."""

import subprocess

import torch

COLUMNS = {"SM, MHz": "clocks.sm", "memory, MHz": "clocks.mem", "°C": "temperature.gpu", "W": "power.draw"}
REASONS = "clocks_event_reasons.active"
HELD_BACK = {0x1: "rest", 0x4: "power", 0x8: "hardware", 0x20: "heat", 0x40: "heat, by hardware", 0x80: "power brake"}
"""By the bits of REASONS."""
PATIENCE = 10.0                          # seconds


def clocks() -> dict[str, object]:
    """Returns the clocks by column; a note if the driver does not tell."""
    if not torch.cuda.is_available():
        return {"note": "no GPU has clocks here"}
    device = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    command = ["nvidia-smi", f"--id={device}", f"--query-gpu={','.join([*COLUMNS.values(), REASONS])}",
               "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return read(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"note": f"the driver does not tell: {error}"}


def read(line: str) -> dict[str, object]:
    """Returns the readings in a line of the driver's. Raises ValueError for one that is none."""
    *numbers, reasons = (cell.strip() for cell in line.split(","))
    found = int(reasons, 16)
    held_back = [name for bit, name in HELD_BACK.items() if found & bit]
    return {**dict(zip(COLUMNS, map(float, numbers), strict=True)), "held back by": ", ".join(held_back) or "nothing"}
