"""The files of cgroups, as the kernel writes them."""

from collections.abc import Mapping
from pathlib import Path

GIB = 1 << 30


def proc(folder: Path, cgroup: str, mountinfo: str) -> Path:
    """A /proc with these memberships and mounts, and 8 GiB available."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(cgroup)
    (folder / "proc/self/mountinfo").write_text(mountinfo.replace("ROOT", str(folder)))
    (folder / "proc/meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n")
    return folder / "proc"


def fill(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
