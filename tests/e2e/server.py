"""A real server for end-to-end tests: the launcher with its shards and its router, started as a user would."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from penstock.bench.programs.children import free_port
from penstock.bench.server.running import is_ready
from tests.cgroups import MemoryCgroup
from tests.paths import DEMO_MODEL
from tests.processes import is_alive, send

START_TIMEOUT = 120.0
EXACT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""The environment in which glibc returns at once what is freed, as large tensors are: what it keeps by itself goes up
and down by 8 MB."""


class Server:
    """A launcher that serves, its address, and its processes."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def children(self, module: str) -> list[psutil.Process]:
        """The launcher's processes that run `python -P -m penstock.MODULE`."""
        return [child for child in self.processes() if _runs_module(child, module)]

    def shards(self) -> dict[int, psutil.Process]:
        """The shard of each rank, which its settings tell."""
        return {rank: process for process in self.children("shard") if (rank := _rank(process)) is not None}

    def wait_until_healthy(self, timeout: float = START_TIMEOUT) -> None:
        deadline = time.monotonic() + timeout
        while not self.is_healthy():
            if self.process.poll() is not None:
                raise RuntimeError(f"the launcher ended with {self.process.returncode}:\n{self.log.read_text()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer after {timeout} s:\n{self.log.read_text()}")
            time.sleep(0.02)

    def is_healthy(self) -> bool:
        return is_ready(self.url)

    def terminate(self, timeout: float = 60) -> int:
        """SIGTERM, then the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def processes(self) -> list[psutil.Process]:
        """All of the launcher's processes; none once it has ended."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []


def _runs_module(process: psutil.Process, module: str) -> bool:
    with suppress(psutil.NoSuchProcess):
        return is_alive(process) and process.cmdline()[2:4] == ["-m", f"penstock.{module}"]
    return False


def _rank(process: psutil.Process) -> int | None:
    with suppress(psutil.NoSuchProcess, ValueError):  # its command line is empty once it has ended
        arguments = process.cmdline()
        rank: int = json.loads(arguments[arguments.index("--config") + 1])["rank"]
        return rank
    return None


def launcher_command(model: Path, port: int, *flags: str, shell: str = "") -> list[str]:
    """The launcher's command line; `shell` are commands to run before, such as `ulimit`."""
    launcher = Path(sys.executable).with_name("text-generation-launcher")
    command = [str(launcher), "--model-id", str(model), "--hostname", "127.0.0.1", "--port", str(port), *flags]
    return ["bash", "-c", f'{shell} && exec "$0" "$@"', *command] if shell else command


@contextmanager
def serve(
    tmp_path: Path, *flags: str, model: Path = DEMO_MODEL, port: int | None = None,
    environment: Mapping[str, str] | None = None, shell: str = "", cgroup: MemoryCgroup | None = None,
) -> Iterator[Server]:
    """Start a server, with more variables in its environment, after commands of the shell and within a cgroup if there
    are any, yield it once it answers, and see that its end leaves nothing behind."""
    port = port or free_port()
    command = launcher_command(model, port, *flags, shell=shell)
    with running(tmp_path, command, port, environment, cgroup) as server:
        yield server


@contextmanager
def serve_group(tmp_path: Path, *flags: str, model: Path = DEMO_MODEL, port: int) -> Iterator[Server]:
    """Start a group without a router at a port and those that follow, and yield it before its shards listen."""
    command = [str(Path(sys.executable).with_name("penstock")), "group", str(model), "--listen", f"127.0.0.1:{port}"]
    with running(tmp_path, [*command, *flags], port, is_server=False) as group:
        yield group


@contextmanager
def serve_groups(
    tmp_path: Path, number: int, *flags: str, router: Sequence[str] = (), environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Server, list[Server]]]:
    """Start groups of one shard of one thread, with `flags`, and a router that knows them; yield all once they serve.
    """
    with ExitStack() as stack:
        ports = [free_port() for _ in range(number)]
        groups = [stack.enter_context(serve_group(tmp_path, "--threads", "1", *flags, port=port)) for port in ports]
        server = stack.enter_context(serve(
            tmp_path, "--groups", ",".join(f"127.0.0.1:{port}" for port in ports), *router, environment=environment))
        while f'penstock_groups{{state="serving"}} {number}.0' not in _get(f"{server.url}/metrics"):
            for group in groups:
                assert group.process.poll() is None, group.log.read_text()
            time.sleep(0.02)
        yield server, groups


def _get(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        text: str = response.read().decode()
    return text


@contextmanager
def running(
    tmp_path: Path, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None,
    cgroup: MemoryCgroup | None = None, is_server: bool = True,
) -> Iterator[Server]:
    """Run a launcher, and see that its end leaves nothing behind."""
    log = tmp_path / f"server-{port}.log"
    # Short, for a socket's path has at most 107 bytes, and the folders of groups lie deeper.
    temporary = tmp_path / "tmp" if is_server else Path(tempfile.mkdtemp(prefix="test-"))
    temporary.mkdir(exist_ok=True)
    # Once transformers is imported, torch makes a folder that is there for later processes, too.
    own = {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    with log.open("ab") as output:
        process = subprocess.Popen(cgroup.command(command) if cgroup else command,
                                   stdout=output, stderr=subprocess.STDOUT,
                                   env={**os.environ, **(environment or {}), **own})
    server = Server(process, port, log)
    processes: list[psutil.Process] = []
    try:
        if is_server:
            server.wait_until_healthy()
        processes = server.processes()
        yield server
        if process.poll() is None:
            processes += server.processes()
            assert server.terminate() == 0, log.read_text()
    finally:
        if process.poll() is None:
            processes += server.processes()
            process.kill()
            process.wait()
        left = [each for each in processes if is_alive(each)]
        for child in left:
            send(child, signal.SIGKILL)
    assert not left, f"processes left behind: {left}"
    assert not list(temporary.iterdir()), f"files left behind: {list(temporary.iterdir())}"
    if not is_server:
        temporary.rmdir()
