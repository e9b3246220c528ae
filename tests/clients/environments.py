"""Environments of clients, whose requirements contradict one another and ours; `make clients` makes them: virtual ones
of Python, and folders of packages of npm's."""

from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / ".venv" / "clients"


def templates() -> Path:
    """Returns the directory of the published chat templates, or skips the test."""
    if not (HOME / "templates" / "stamp").exists():
        pytest.skip("the published chat templates are not there: run `make clients`, for which a network is needed")
    return HOME / "templates"


def python_of(client: str) -> Path:
    """Returns the interpreter of the environment with the dependency group `client-CLIENT`, or skips the test."""
    if not (HOME / client / "stamp").exists():
        pytest.skip(f"the client {client} is not installed: run `make clients`, for which a network is needed")
    return HOME / client / "bin" / "python"


def program_of(client: str, path: str) -> Path:
    """Returns the program at this path below the packages that npm installed for a client, or skips the test."""
    if not (HOME / client / "stamp").exists():
        pytest.skip(f"the client {client} is not installed: run `make clients`, for which npm and a network are needed")
    return HOME / client / "node_modules" / path
