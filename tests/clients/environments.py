"""Virtual environments of clients, whose requirements contradict one another and ours; `make clients` makes them."""

from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / ".venv" / "clients"


def python_of(client: str) -> Path:
    """Returns the interpreter of the environment with the dependency group `client-CLIENT`, or skips the test."""
    if not (HOME / client / "stamp").exists():
        pytest.skip(f"the client {client} is not installed: run `make clients`, for which a network is needed")
    return HOME / client / "bin" / "python"
