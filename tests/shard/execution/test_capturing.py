"""Which models' steps can be captured: those that a GPU runs without the host's knowing anything of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.mark.slow
def test_no_captured_step_waits_for_the_device(tmp_path: Path) -> None:
    """Of families of all kinds, on the GPU's ops; and what does wait is not captured: mixtures of coded experts."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    program = subprocess.run([sys.executable, "-m", "tests.shard.execution.capturing", str(tmp_path)], cwd=ROOT,
                             env=environment, capture_output=True, text=True, check=False)
    assert program.returncode == 0, program.stderr
    reports = json.loads(program.stdout)
    assert [each for each in reports if each["is_capturable"] == bool(each["waiting"])] == []
    assert {each["is_capturable"] for each in reports if each["quantize"]} == {True, False}
