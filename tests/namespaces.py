"""Namespaces of Linux, for tests of what a container is like: its first process, and files that nobody can write."""

import subprocess

import pytest

PROCESSES = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")
"""Runs a command as process 1."""
MOUNTS = ("unshare", "--mount")
"""Runs a command with mounts of its own."""


def need(namespace: tuple[str, ...]) -> None:
    """Skips the test where this user may not have the namespace."""
    tried = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this user may not have namespaces: {tried.stderr.strip()}")
