"""What a built wheel brings: everything lies under `penstock`, and the installed package runs by itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

LEFT_OUT = shutil.ignore_patterns(".*", "build", "__pycache__", "*.egg-info", "tests", "*-sanitized.so")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs; the kernels are those that are compiled already."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), "."],
                   cwd=folder / "source", check=True)
    [wheel] = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


def run(installed: Path, *arguments: str) -> str:
    """The output of the installed package, with nothing of the checkout on the path."""
    program = [sys.executable, "-P", *arguments]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    return subprocess.run(program, cwd=installed, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_nothing_of_ours_is_at_the_top_but_penstock(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {"penstock", "bin"}


@pytest.mark.slow
def test_the_installed_package_runs(installed: Path) -> None:
    where = run(installed, "-c", "from penstock.kernels import dispatch; print(dispatch.__file__, dispatch.path())")
    assert where.startswith(f"{installed}/penstock/kernels/dispatch.py ")
    assert run(installed, "-m", "penstock", "--version").startswith("penstock, version ")
    assert "usage: python -m penstock.shard" in run(installed, "-m", "penstock.shard", "--help")
