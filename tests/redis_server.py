"""A Redis of the tests' own, Debian's, which keeps nothing on the disk."""

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.bench.programs.children import free_port

PROGRAM = shutil.which("redis-server")
only_with_redis = pytest.mark.skipif(
    PROGRAM is None or importlib.util.find_spec("redis") is None, reason="Redis, or its client, is not installed")
_SECONDS = 30.0


class RedisServer:
    """A server that can be ended and started again."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server, and waits until it takes connections."""
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder],
            stdout=subprocess.DEVNULL)
        end = time.monotonic() + _SECONDS
        while True:
            assert self._process.poll() is None, f"Redis has ended with {self._process.returncode}"
            assert time.monotonic() < end, "Redis does not start"
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends the server at once, as if its machine had died."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_SECONDS)
            self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None


@contextmanager
def running_redis() -> Iterator[RedisServer]:
    """Runs a server while the block does, at a port that was free."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-redis-"))
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
