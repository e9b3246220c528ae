"""Runs the checkers of deployment files, which Debian's packages bring."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml


def run(command: str, *arguments: str, folder: Path, package: str) -> str:
    """Returns what the command prints in the folder; skips the test where the command is not installed."""
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed: apt-get install {package}")
    ended = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def composed(folder: Path, *arguments: str) -> dict[str, dict]:
    """Returns the services of the folder's compose file, with all variables put in."""
    printed = run("docker-compose", *arguments, "config", folder=folder, package="docker-compose")
    return yaml.safe_load(printed)["services"]
