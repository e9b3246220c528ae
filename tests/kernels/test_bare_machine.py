"""The kernels' tests start on a machine with nothing but Python, torch, Triton, pytest and numpy."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGES = ("torch", "triton", "numpy", "pytest", "iniconfig", "packaging", "pluggy", "pygments", "sympy", "mpmath",
            "filelock", "typing-extensions", "networkx", "jinja2", "markupsafe", "fsspec")
"""These and what they need."""


@pytest.mark.slow
def test_the_tests_of_kernels_start_with_little(tmp_path: Path) -> None:
    for package in PACKAGES:
        own = distribution(package)
        for name in {Path(file).parts[0] for file in own.files or () if ".." not in Path(file).parts}:
            if not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(Path(str(own.locate_file(name))))
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-S", "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments], cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    collected = run("-m", "gpu or not gpu", "--collect-only")
    assert collected.returncode == 0, collected.stdout[-3000:] + collected.stderr
    assert "tests/kernels/test_paged_attention.py" in collected.stdout
    ran = run("tests/kernels/test_softcap.py")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr
