"""Programs that a benchmark starts: their environment, their last words, their processor time, their end."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import psutil

PATIENCE = 60.0                          # seconds after SIGTERM


def free_port() -> int:
    """Returns a port of this machine that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def last_lines(text: str, number: int = 25) -> str:
    return "\n".join(text.rstrip().splitlines()[-number:])


def exit_on_sigterm() -> None:
    """Makes SIGTERM an exception, so that `with` blocks end the children then too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Child:
    """A program that runs in `folder`, its output in a file there; a context manager that ends it.

    It has a process group of its own, so that Ctrl-C reaches it through `end` alone.
    """

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str], pass_fds: Sequence[int] = ()
    ) -> None:
        """Starts the program, with `environment` added to this process's."""
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, pass_fds=pass_fds, start_new_session=True)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def output(self) -> str:
        """All that the program has written so far."""
        return self._log.read_text(errors="replace")

    def failure(self, what: str) -> click.ClickException:
        """Returns an error that shows what the program said last."""
        return click.ClickException(f"{self.name} {what}; its last lines:\n"
                                    f"{last_lines(self.output)}")

    def family(self) -> list[psutil.Process]:
        """Returns the program's process and its descendants, those that are alive."""
        try:
            root = psutil.Process(self.process.pid)
            processes = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    def cpu_seconds(self, module: str | None = None, word: str = "") -> float:
        """Returns the processor time of all its processes, or of those that run `python -P -m penstock.MODULE` with
        `word` in an argument."""
        seconds = 0.0
        for process in self.family():
            try:
                line = process.cmdline()
                is_counted = module is None or line[2:4] == ["-m", f"penstock.{module}"]
                if is_counted and any(word in argument for argument in line):
                    seconds += sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                pass
        return seconds

    def resident_bytes(self) -> int:
        """Returns the memory of all its processes, what they share counted once."""
        return sum(process.memory_full_info().pss for process in self.family())

    def end(self) -> None:
        """Sends the program SIGTERM, and kills what of its processes is left after that."""
        family = self.family()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _, left = psutil.wait_procs([process for process in family if process.pid != self.process.pid], timeout=5)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=5)
