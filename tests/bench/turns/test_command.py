"""The figures of an agent's turns, on real processes with a scripted shard."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_an_agent_finds_its_prompts_in_the_cache() -> None:
    """From the second turn on at least 97 % of each prompt come from the cache, through each API."""
    done = subprocess.run([sys.executable, "-m", "penstock", "bench", "turns", "cache"], capture_output=True, text=True,
                          check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    shares = re.findall(r"cache: (\w+): .* of each turn at least ([0-9.]+) %", done.stdout)
    assert [name for name, _ in shares] == ["chat", "responses", "messages"]
    assert all(float(share) >= 97 for _, share in shares), done.stdout
