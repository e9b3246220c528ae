import subprocess
import sys
from importlib.metadata import version

from penstock.system import release
from tests.paths import ROOT


def test_an_installed_package_tells_its_version() -> None:
    assert version("penstock") == release.VERSION


def test_a_checkout_that_nobody_installed_runs() -> None:
    """The standard library alone is on the path of this interpreter, without site packages."""
    told = subprocess.run([sys.executable, "-S", "-c", "from penstock.system.release import VERSION; print(VERSION)"],
                          capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)})
    assert (told.stdout, told.stderr) == ("unknown\n", "")
