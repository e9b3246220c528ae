"""What `make setup` and pip say where they can't go on."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.fixture
def unlinked(tmp_path: Path) -> Path:
    """A copy of the checkout's door as it is without symbolic links: each link is a file with its target."""
    for name in ("Makefile", "setup.py", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock/kernels").write_text("../kernels")
    return tmp_path


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", [["make", "serve"], ["make", "test"], [sys.executable, "setup.py", "--version"]])
def test_a_checkout_without_links_says_so(unlinked: Path, command: list[str]) -> None:
    result = run(unlinked, *command)
    assert result.returncode != 0
    assert "made without symbolic links" in result.stdout + result.stderr
    assert "Clone the repository by git" in result.stdout + result.stderr
    assert not (unlinked / ".venv").exists()


@pytest.mark.slow
def test_a_failure_shows_the_end_of_the_log(unlinked: Path) -> None:
    (unlinked / "penstock/kernels").unlink()
    (unlinked / "penstock/kernels").mkdir()
    result = run(unlinked, "make", "setup", "PIP=no-such-package", PIP_NO_INDEX="1")
    assert result.returncode != 0
    steps = result.stdout.splitlines()
    assert steps[:2] == ["Creating the environment .venv", "This failed. The last lines of .venv/setup.log:"]
    assert "No matching distribution found for no-such-package" in steps[-1]
    assert steps[-1] in (unlinked / ".venv/setup.log").read_text()


@pytest.mark.parametrize("kind", ["chat", "embedding"])
def test_without_an_index_a_model_is_not_fetched(tmp_path: Path, kind: str) -> None:
    """The program fails with one sentence, and leaves no part of a file; `make serve` takes the demo model then."""
    result = run(ROOT, sys.executable, "deploy/fetch_model.py", kind, str(tmp_path / "cache"), PIP_NO_INDEX="1")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[1].startswith(f"The {kind} model could not be fetched: ERROR: No matching")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("name", ["model.gguf", "model"])
def test_a_model_that_another_process_has_fetched_meanwhile_stays(tmp_path: Path, name: str) -> None:
    """Whether it is a file or a folder."""
    spec = importlib.util.spec_from_file_location("fetch_model", ROOT / "deploy/fetch_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for folder in ("first", "second"):
        fetched = tmp_path / folder / name
        (fetched if name == "model" else fetched.parent).mkdir(parents=True)
        (fetched / "config.json" if name == "model" else fetched).write_text("same")
        module.put(fetched, tmp_path / name)
    found = tmp_path / name / "config.json" if name == "model" else tmp_path / name
    assert found.read_text() == "same"
    with pytest.raises(FileNotFoundError):
        module.put(tmp_path / "first" / "none", tmp_path / "other")
