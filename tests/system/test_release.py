import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from penstock.system import release
from tests.paths import ROOT


def test_an_installed_package_tells_its_version() -> None:
    assert version("penstock") == release.VERSION


def test_a_checkout_that_nobody_installed_runs(tmp_path: Path) -> None:
    """The standard library and the package alone are on the path of this interpreter. An editable installation leaves
    its metadata in the checkout, so the package is reached by a link from elsewhere."""
    (tmp_path / "penstock").symlink_to(ROOT / "penstock")
    told = subprocess.run([sys.executable, "-S", "-c", "from penstock.system.release import VERSION; print(VERSION)"],
                          capture_output=True, text=True, check=False, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert (told.stdout, told.stderr) == ("unknown\n", "")
