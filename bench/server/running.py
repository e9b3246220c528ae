"""Servers that run for as long as they are measured."""

import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.bench.programs.children import Child
from penstock.bench.programs.peers import ServerCommand

START_TIMEOUT = 900.0                    # vLLM compiles when it starts for the first time


@contextmanager
def running(server: ServerCommand, port: int, may_end: bool = False) -> Iterator[Child]:
    """Starts a server, and yields it once it is ready. Raises ClickException if it ends by itself, unless it may."""
    with (tempfile.TemporaryDirectory() as folder,
          Child(server.name, server.command, Path(folder), server.environment) as child):
        wait_until_ready(child, f"http://127.0.0.1:{port}")
        yield child
        if child.process.poll() is not None and not may_end:
            raise child.failure(f"ended with {child.process.returncode} under load")


def wait_until_ready(child: Child, url: str) -> None:
    """Waits for the server. Raises ClickException if it ends, or is not ready in time."""
    deadline = time.monotonic() + START_TIMEOUT
    while not is_ready(url):
        if child.process.poll() is not None:
            raise child.failure(f"ended with {child.process.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise child.failure(f"was not ready after {START_TIMEOUT:g} s")
        time.sleep(0.05)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
