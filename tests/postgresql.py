"""A PostgreSQL of the tests' own, Debian's, which an unprivileged user runs in a temporary folder."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.bench.programs.children import free_port
from tests.other_user import OTHER_USER

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), default=None)
only_with_postgresql = pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL's programs are not installed")
_SECONDS = 60.0
_NUMBERS = itertools.count()


class PostgreSQL:
    """A server of databases, which can be ended and started again."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(folder / "data"), "-U", "penstock", "-A", "trust", "--no-sync", "--no-locale",
                  "--encoding=UTF8")

    def start(self) -> None:
        """Starts the server, and waits until it takes connections."""
        assert PROGRAMS is not None
        settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=8MB")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_user(), PROGRAMS / "postgres", "-D", self._folder / "data", "-p", str(self.port),
                 *(word for setting in settings for word in ("-c", setting))],
                stdout=subprocess.DEVNULL, stderr=log)
        end = time.monotonic() + _SECONDS
        while self._try("pg_isready", "-q", *self._where).returncode:
            assert self._process.poll() is None, f"{self._process.returncode}: {(self._folder / 'log').read_text()}"
            assert time.monotonic() < end, "PostgreSQL does not start"
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends the server at once, as if its machine had died."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_SECONDS)
            self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def new_database(self) -> str:
        """Returns the URL of a new, empty database."""
        name = f"database_{next(_NUMBERS)}"
        self._run("createdb", *self._where, "-U", "penstock", name)
        return f"postgresql://penstock:secret@127.0.0.1:{self.port}/{name}"

    @property
    def _where(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port)]

    def _run(self, *command: str) -> None:
        done = self._try(*command)
        assert done.returncode == 0, done.stdout.decode()

    def _try(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        assert PROGRAMS is not None
        return subprocess.run([*_as_user(), PROGRAMS / program, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, cwd=self._folder, timeout=_SECONDS)


def _as_user() -> list[str]:
    """Returns the command that runs another one as no root. Popen itself would fork for that, and a child of a process
    with threads of gRPC may die before it is another program."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """Runs a server while the block does, at a port that was free."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgresql-"))
    if os.geteuid() == 0:
        os.chown(folder, OTHER_USER, OTHER_USER)
    server = PostgreSQL(folder, free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
