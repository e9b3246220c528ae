"""A real launcher over small processes that stand in for shards and router (stand_ins.py).

As a program it is that launcher; behaviour and the file of events come by environment variables.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.launcher import stand_ins
from tests.paths import DEMO_MODEL, ROOT
from tests.processes import runs

PATIENCE = 20.0


class Launch:
    """A running launcher. `behaviour`: `router` and `shard_1`, for instance, with what that process is to do."""

    def __init__(self, directory: Path, arguments: Sequence[str], behaviour: Mapping[str, str]) -> None:
        self._events = directory / "events"
        self._events.touch()
        self.private = directory / "tmp"
        self.private.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._errors = directory / "stderr"
        variables = {"EVENTS": str(self._events), "TMPDIR": str(self.private), "PYTHONPATH": str(ROOT),
                     **{name.upper(): value for name, value in behaviour.items()}}
        self._command = [
            sys.executable, "-m", "tests.launcher.stand_in_processes", "--model-id", str(DEMO_MODEL),
            "--hostname", "127.0.0.1", "--num-shard", "2"]
        self._arguments = arguments
        self._environment = os.environ | variables
        self.port = port
        self.process = self._start("--port", str(port))

    def again(self) -> subprocess.Popen[bytes]:
        """Starts a second launcher with the same arguments at another port."""
        return self._start("--port", "0")

    def _start(self, *more: str) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as stderr:
            return subprocess.Popen([*self._command, *more, *self._arguments], cwd=ROOT, env=self._environment,
                                    stderr=stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        for pid in [self.process.pid, *self.pids()] if self.process.poll() is None else self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    @property
    def events(self) -> list[str]:
        """`NAME WHAT`, in the order in which things happened."""
        return [line.partition(" ")[2] for line in self._lines()]

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def pids(self, name: str = "") -> list[int]:
        """Those of the children that wrote an event and still live; `name` limits them."""
        known = {int(line.split()[0]): line.split()[1] for line in self._lines()}
        return [pid for pid, who in known.items() if who.startswith(name) and runs(pid)]

    def who_noted(self, name: str, event: str) -> set[int]:
        """Those of the children of that name to which this has happened and that still live."""
        return {int(line.split()[0]) for line in self._lines() if line.endswith(f" {event}")} & set(self.pids(name))

    def wait_for(self, *events: str) -> None:
        """Until each has happened as often as it is named."""
        wait_until(lambda: all(self.events.count(event) >= events.count(event) for event in events),
                   lambda: f"{events}; events {self.events}; stderr:\n{self.errors}")

    def wait_for_no_child(self) -> None:
        wait_until(lambda: not self.pids(), lambda: f"the end of {self.pids()}")

    def _lines(self) -> list[str]:
        return self._events.read_text().splitlines()


def wait_until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited for {what()}"
        time.sleep(0.02)


def _launcher(arguments: Sequence[str]) -> None:
    from penstock.launcher import launch as launcher
    from penstock.launcher import programs, progress_watch, watch
    from penstock.launcher.processes import Program
    from penstock.router.notices import Notice
    from penstock.system import child_environment
    assert (stand_ins.LOADING, stand_ins.GIVEN_UP) == (Notice.LOADING, Notice.GIVEN_UP)
    watch.POLL_SECONDS, watch.CALL_SECONDS = 0.05, 0.5
    progress_watch.POLL_SECONDS = 0.05
    launcher.LEAST_SILENCE_SECONDS = 1.5
    programs.program_of = lambda name, module, arguments: Program(
        name, [sys.executable, stand_ins.__file__, module, *arguments], gives_signs=True)
    child_environment.for_shard = child_environment.for_router = lambda: dict(os.environ)
    launcher.main(list(arguments))


if __name__ == "__main__":
    _launcher(sys.argv[1:])
