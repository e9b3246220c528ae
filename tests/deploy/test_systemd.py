"""The systemd unit: systemd finds nothing wrong with it, and its variables are the launcher's."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.chart import launcher_variables
from tests.paths import ROOT

UNIT = ROOT / "deploy/systemd/penstock.service"
PROGRAM = "/opt/penstock/bin/text-generation-launcher"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze checks the unit: install Debian's package systemd")


def variables() -> dict[str, str]:
    lines = re.findall(r"^Environment=(.*)$", UNIT.read_text(), re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


@needs_systemd
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))  # the program must be there
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    # Others' units on this machine, which are read as well, may have faults.
    assert not [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert PROGRAM in UNIT.read_text()


@needs_systemd
def test_the_service_has_few_rights() -> None:
    """systemd rates what a service may do from 0 to 10; 2 is "OK"."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", UNIT],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_running_requests_finish_before_systemd_kills() -> None:
    [stop] = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert int(stop) >= int(variables()["GRACEFUL_TERMINATION_TIMEOUT"]) + 10


def test_the_launcher_knows_the_variables() -> None:
    assert set(variables()) <= {*launcher_variables(), "HF_HOME", "XDG_CACHE_HOME", "HOME"}
