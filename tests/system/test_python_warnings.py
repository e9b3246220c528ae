"""Warnings of Python and its libraries are lines of the log, in each kind of process."""

import json
import subprocess
import sys

import pytest

WARN = "import warnings; warnings.warn('`HUB` is\\n  deprecated', FutureWarning)"


@pytest.mark.parametrize("start", [
    "from penstock.router import logs; logs.configure('INFO', True)",
    "from penstock.shard import log; log.start(True, 0)"])
def test_a_warning_is_one_line_of_json(start: str) -> None:
    """In a process of its own: pytest takes warnings for itself."""
    ended = subprocess.run([sys.executable, "-c", f"{start}\n{WARN}"], capture_output=True, text=True, check=True)
    (line,) = ended.stderr.splitlines()
    assert json.loads(line)["level"] == "WARNING"
    assert json.loads(line)["message"] == "FutureWarning: `HUB` is deprecated"
