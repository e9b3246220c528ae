"""`python -m tests.faults.hog FOLDER PID` uses up the memory of a cgroup, until a process in it is killed."""

import os
import sys
import time
from pathlib import Path

from tests.processes import runs

CHUNK_BYTES = 8 << 20
KILLED_FIRST, KILLED_NEXT = "1000", "500"
"""The victim's standing, and this process's own: the kernel may kill again before what the victim held is free, and
then not the router or another shard."""


def main(cgroup: Path, pid: int) -> None:
    Path(f"/proc/{pid}/oom_score_adj").write_text(KILLED_FIRST)
    Path("/proc/self/oom_score_adj").write_text(KILLED_NEXT)
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    held = []
    while runs(pid):
        held.append(b"\1" * CHUNK_BYTES)
        time.sleep(0.005)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
