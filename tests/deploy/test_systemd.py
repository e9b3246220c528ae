"""The systemd units: systemd finds nothing wrong with them, and their variables are the launcher's."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.launcher.cli import main as penstock
from penstock.router.fleet.groups_spec import read
from tests.deploy.chart import launcher_variables
from tests.paths import ROOT

FOLDER = ROOT / "deploy/systemd"
PROGRAMS = {"penstock.service": "/opt/penstock/bin/text-generation-launcher",
            "penstock-group@.service": "/opt/penstock/bin/penstock group"}
every_unit = pytest.mark.parametrize("name", PROGRAMS)
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze checks the unit: install Debian's package systemd")


def lines(name: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", (FOLDER / name).read_text(), re.MULTILINE)


def variables(name: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for line in lines(name, "Environment") for pair in line.split())


@needs_systemd
@every_unit
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name.replace("@", "@4000")
    assert lines(name, "ExecStart") == [PROGRAMS[name]]
    unit.write_text((FOLDER / name).read_text().replace(PROGRAMS[name], "/bin/true"))  # the program must be there
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    # Others' units on this machine, which are read as well, may have faults.
    assert not [line for line in done.stderr.splitlines() if unit.name in line]


@needs_systemd
@every_unit
def test_the_service_has_few_rights(name: str, tmp_path: Path) -> None:
    """systemd rates what a service may do from 0 to 10; 2 is "OK"."""
    unit = tmp_path / name.replace("@", "@4000")
    unit.write_text((FOLDER / name).read_text())
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


@every_unit
def test_running_requests_finish_before_systemd_kills(name: str) -> None:
    [stop] = lines(name, "TimeoutStopSec")
    assert int(stop) >= int(variables(name)["GRACEFUL_TERMINATION_TIMEOUT"]) + 10


@every_unit
def test_the_launcher_knows_the_variables(name: str) -> None:
    of_groups = {option.envvar for option in penstock.commands["group"].params}
    known = of_groups if name.startswith("penstock-group") else set(launcher_variables())
    assert set(variables(name)) <= known | {"HF_HOME", "XDG_CACHE_HOME", "HOME"}


def test_a_group_has_the_credentials_that_its_variables_name() -> None:
    name = "penstock-group@.service"
    loaded = [line.split(":")[0] for line in lines(name, "LoadCredential")]
    assert sorted(f"%d/{credential}" for credential in loaded) == sorted(
        value for variable, value in variables(name).items() if variable.startswith("SHARD_TLS_"))


def test_the_groups_are_read_as_they_are_written() -> None:
    assert read(FOLDER / "groups.yaml") == ("node-a:4000", "node-b:4000")
