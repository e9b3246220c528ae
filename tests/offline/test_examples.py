"""The examples run as they are, all but one with the same model."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import LLM
from tests.adapter_files import make_adapter
from tests.paths import DEMO_MODEL, ROOT

EXAMPLES = ROOT / "examples/offline"
SHARED = ("basic", "chat", "several_answers", "structured_outputs", "prefix_caching", "beam_search")


@pytest.mark.parametrize("name", SHARED)
def test_an_example_runs(llm: LLM, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](llm)
    assert len(capsys.readouterr().out.splitlines()) >= 3


@pytest.mark.slow
def test_the_example_with_an_adapter_runs(llm: LLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = make_adapter(tmp_path / "mine", DEMO_MODEL, strength=3.0)
    runpy.run_path(str(EXAMPLES / "adapters.py"))["main"](llm, str(adapter))
    plain, adapted = (line.partition(": ")[2] for line in capsys.readouterr().out.splitlines())
    assert plain != adapted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streaming", "basic"])
def test_an_example_runs_as_a_program(name: str) -> None:
    done = subprocess.run([sys.executable, f"examples/offline/{name}.py"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert "def a" in done.stdout


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHARED, "adapters", "streaming"}
