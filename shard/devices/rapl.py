"""Reads the energy of this machine's processors and of their memory from Linux, which has it from Intel's and AMD's
processors (RAPL)."""

import os
from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
PERIOD = 0.005
"""The least seconds between two readings: one takes some ten microseconds, and counts move once a millisecond."""
_MOST_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Zone:
    """Stands for a folder with the count of a processor's package, or of its memory."""

    file: Path
    most: int

    def read(self) -> int:
        descriptor = os.open(self.file, os.O_RDONLY)
        try:
            return int(os.read(descriptor, _MOST_DIGITS))
        finally:
            os.close(descriptor)


def counters(powercap: Path) -> list[Zone]:
    """Returns the counters of all packages, and of the memory that is not in them; none if the machine has none. Raises
    OSError for one that can't be read.

    Cores and graphics are left out, since they are parts of packages, and so is the whole platform, of which packages
    are a part. Zones of other names than `intel-rapl` may be the same packages once more.
    """
    folders = sorted(powercap.glob("intel-rapl:*"))
    found = [folder for folder in folders if (folder / "name").read_text().startswith(("package", "dram"))]
    return [Zone(folder / "energy_uj", int((folder / "max_energy_range_uj").read_text())) for folder in found]
