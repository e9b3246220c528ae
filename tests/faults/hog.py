"""`python -m tests.faults.hog FOLDER PID` uses up the memory of a cgroup, until a process in it is killed."""

import os
import sys
import time
from pathlib import Path

CHUNK_BYTES = 8 << 20
KILLED_FIRST = "1000"


def main(cgroup: Path, pid: int) -> None:
    Path(f"/proc/{pid}/oom_score_adj").write_text(KILLED_FIRST)
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    held = []
    while is_running(pid):
        held.append(b"\1" * CHUNK_BYTES)
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
