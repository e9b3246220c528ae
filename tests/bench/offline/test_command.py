"""`penstock bench offline` measures all contenders, and tells their ratios."""

import re
import subprocess
import sys

import pytest

from tests.paths import DEMO_MODEL


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
