"""SIGTERM while the launcher starts, also as process 1, which the kernel sends no signal that it has no handler for."""

import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import namespaces
from tests.launcher.stand_in_processes import PATIENCE, wait_until
from tests.paths import DEMO_MODEL, ROOT

STATUS = 128 + signal.SIGTERM


def command(name: str) -> list[str]:
    """What pyproject.toml has pip install under this name."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, attribute = scripts[name].partition(":")
    return [sys.executable, "-c", f"import sys; from {module} import {attribute} as run; sys.exit(run())"]


@contextmanager
def running(argv: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(argv, cwd=ROOT, env=os.environ | variables, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str], pid: int) -> str:
    """Sends SIGTERM, of which it is to end; returns what is on stderr."""
    os.kill(pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == STATUS, errors
    return errors


def first_process(unshare: int) -> int:
    """The id out here of the process that is 1 in there, once it has a handler for SIGTERM."""
    children = Path(f"/proc/{unshare}/task/{unshare}/children")

    def catches() -> bool:
        statuses = [Path(f"/proc/{pid}/status").read_text() for pid in children.read_text().split()]
        masks = [int(re.findall(r"SigCgt:\s*(\w+)", status)[0], 16) for status in statuses]
        return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)

    wait_until(catches, lambda: "a handler for SIGTERM")
    return int(children.read_text())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[socket.socket]:
    """A Hub that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        yield server


@pytest.mark.parametrize("name", ["text-generation-launcher", "penstock"])
def test_process_1_hears_it_from_the_first_moment_on(name: str, hub: socket.socket) -> None:
    namespaces.need(namespaces.PROCESSES)
    arguments = ["serve", "org/model"] if name == "penstock" else ["--model-id", "org/model"]
    argv = [*namespaces.PROCESSES, *command(name), *arguments, "--port", "0"]
    with running(argv) as process:
        assert end(process, first_process(process.pid)) == ""


def test_it_ends_a_download_at_once(hub: socket.socket) -> None:
    argv = [*command("penstock"), "serve", "org/model", "--port", "0"]
    with running(argv) as process:
        connection, _ = hub.accept()
        with connection:
            assert end(process, process.pid) == ""


def test_it_is_heard_while_python_waits_for_a_library() -> None:
    """As for the address of a host: here for a lock that nobody opens, whatever the signals."""
    code = ("import ctypes; from penstock.launcher import sigterm; sigterm.end_at_once(); "
            "lock, lib = ctypes.create_string_buffer(64), ctypes.CDLL(None); lib.pthread_mutex_lock(lock)\n"
            "with sigterm.heard_in_waits(): print('waits', flush=True); lib.pthread_mutex_lock(lock)")
    with running([sys.executable, "-c", code]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        assert end(process, process.pid) == ""


def test_it_leaves_no_folder_behind(tmp_path: Path) -> None:
    code = ("import signal; from penstock.launcher import entry, placed_model; "
            "placed_model.shard_memories = lambda count: (print('waits', flush=True), signal.pause()); "
            "entry.launcher()")
    argv = [sys.executable, "-c", code, "--model-id", str(DEMO_MODEL), "--port", "0"]
    with running(argv, TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        assert len(list(tmp_path.iterdir())) == 1
        assert end(process, process.pid) == ""
    assert list(tmp_path.iterdir()) == []
