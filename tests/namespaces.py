"""Namespaces of Linux, for tests of what a container is like: its first process, and files that nobody can write."""

import subprocess
from collections.abc import Sequence

import pytest

PROCESSES = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")
"""Runs a command as process 1."""

_READ_ONLY = 'while read -r _ folder _; do mount -o remount,bind,ro "$folder"; done < /proc/self/mounts'
_RUN = 'exec "$@"'


def read_only(*mounts: str) -> list[str]:
    """Returns what runs a command where nothing can be written, but in what the commands `mounts` mount."""
    return ["unshare", "--mount", "bash", "-ec", "\n".join([_READ_ONLY, *mounts, _RUN]), "bash"]


def user(uid: int) -> list[str]:
    """Returns what runs a command as a user who needs not be known, and who may read all files."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search"]


def need(command: Sequence[str]) -> None:
    """Skips the test where this user may not run a command so."""
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this user may not have namespaces: {tried.stderr.strip()}")
