"""The lectures that ask a server."""

import json
import subprocess
import sys

import pytest

from tests.e2e.server import Server
from tests.paths import ROOT

RESUME = ROOT / "examples/lectures/resume_to_json.py"


@pytest.mark.slow
def test_any_model_s_resume_has_its_form(server: Server) -> None:
    done = subprocess.run([sys.executable, str(RESUME), "--url", server.url], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [*found] == ["name", "email", "jobs", "skills"]
    assert 1 <= len(found["jobs"]) <= 3
    assert len(found["skills"]) <= 4
    assert max(map(len, [found["name"], found["email"], *found["skills"]])) <= 24
    for job in found["jobs"]:
        assert [*job] == ["company", "title", "first_year", "last_year"]
        assert 1950 <= job["first_year"] <= 2050
    assert f"python examples/lectures/{RESUME.name}" in RESUME.read_text()
