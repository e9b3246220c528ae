"""A measurement as it is kept: the raw figures, and what one must know to read them or to measure them again."""

import json
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from penstock.kernels import dispatch
from penstock.shard.config import physical_cores


def processor() -> str:
    """Returns the processor's own name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def write(file: Path, kind: str, subject: str, figures: Any) -> None:
    """Writes the raw `figures` of a `kind` of measurement, and beside them machine, date, version and command."""
    file.parent.mkdir(parents=True, exist_ok=True)
    num_cores = len(physical_cores())
    record = {
        "kind": kind, "subject": subject, "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{num_cores} core{'s' * (num_cores != 1)} of {processor()}, {dispatch.path()}",
        "version": version("penstock"), "command": shlex.join(["python", *sys.orig_argv[1:]]), "figures": figures}
    file.write_text(json.dumps(record, indent=1) + "\n")
