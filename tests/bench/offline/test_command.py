"""`penstock bench offline` measures all contenders, and tells their ratios."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import DEMO_MODEL


@pytest.mark.every_case
@pytest.mark.slow
def test_it_measures_all_contenders() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "offline", str(DEMO_MODEL), "--prompts", "8", "--batch", "4",
         "--prompt", "8", "--new", "4", "--rounds", "2", "--threads", "1", "--transformers"],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("LLM.generate", "the engine alone", "transformers"):
        assert re.search(rf"^{name}: [\d.]+ tokens/s \([\d.]+ to [\d.]+\)$", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^LLM\.generate ÷ [a-z ]+: \d+\.\d{3}$", done.stdout, re.MULTILINE)) == 2


@pytest.mark.slow
def test_an_environment_without_vllm_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "offline", str(DEMO_MODEL), "--batch", "4", "--prompt", "8",
         "--new", "4", "--threads", "1", "--vllm", str(tmp_path)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--vllm: there is no {tmp_path}/bin/python" in done.stderr
