"""A Ray cluster of several nodes on this machine, in an environment that has Ray and, beside it, what this one has."""

import json
import os
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from penstock.bench.programs.children import free_port
from tests.paths import ROOT
from tests.processes import is_alive, send

STORE_BYTES = 80_000_000
DRIVER = """
import dataclasses, json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Ray prints what happens to nodes
import ray
ray.init(sys.argv[1], namespace=sys.argv[2], log_to_driver=False)
for line in sys.stdin:
    print(json.dumps(eval(line), default=dataclasses.asdict), file=answers, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node, by its raylet."""

    raylet: psutil.Process

    def kill(self) -> None:
        """Kills all of it at once, as a power cut would."""
        for process in self.processes():
            send(process, signal.SIGKILL)

    def processes(self) -> list[psutil.Process]:
        return [self.raylet, *self.raylet.children(recursive=True)]


class RayCluster:
    """Starts nodes, commands of `penstock ray`, and a driver that is quicker than these; `folder` is Ray's own, and
    tells its processes from others'."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._python = python
        self.folder = folder
        self._driver: subprocess.Popen[str] | None = None
        # A node counts as dead after half a second times three, and not after the fifteen seconds of production.
        self._environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")]),
            "RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "3", "RAY_health_check_initial_delay_ms": "0",
            "RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": str(folder),
            # With niceness 15 a worker takes a minute to start beside other tests.
            "RAY_worker_niceness": "0"}

    def start_node(self, cpus: int, resources: Mapping[str, float], is_head: bool = False) -> Node:
        before = {process.pid for process in self.processes("raylet")}
        port = self.address.rpartition(":")[2]
        head = ["--head", f"--port={port}", f"--temp-dir={self.folder}", "--include-dashboard=false", "--no-monitor"]
        place = head if is_head else [f"--address={self.address}"]
        self._run(["-m", "ray.scripts.scripts", "start", *place, "--node-ip-address=127.0.0.1", f"--num-cpus={cpus}",
                   f"--resources={json.dumps(resources)}", f"--object-store-memory={STORE_BYTES}",
                   "--disable-usage-stats", "--include-log-monitor=false"])
        [raylet] = [process for process in self.processes("raylet") if process.pid not in before]
        return Node(raylet)

    def penstock(self, *arguments: str) -> str:
        """Runs `penstock ray` and returns what it prints."""
        return self._run(["-m", "penstock", "ray", *arguments])

    def call(self, expression: str) -> Any:
        """The value of an expression in a process that has joined the cluster as `ray`: at a node of Ray's choice, with
        which it ends."""
        if self._driver is None or self._driver.poll() is not None:
            self._driver = subprocess.Popen(
                [self._python, "-P", "-c", DRIVER, self.address, "penstock-demo"], env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._driver.stdin
        assert self._driver.stdout
        with suppress(BrokenPipeError):
            print(expression, file=self._driver.stdin, flush=True)
        told = self._driver.stdout.readline()
        if not told:
            self._driver.communicate()
            return self.call(expression)
        return json.loads(told)

    def status(self) -> dict[str, Any]:
        """What the keeper knows."""
        found: dict[str, Any] = self.call("ray.get(ray.get_actor('keeper').status.remote())")
        return found

    def kill_actor(self, name: str, restarts: bool) -> None:
        """Kills an actor of Ray's at once."""
        self.call(f"ray.kill(ray.get_actor({name!r}), no_restart={not restarts})")

    def keeper(self) -> psutil.Process:
        """The process of the keeper, which Ray gives its name."""
        [found] = [process for process in self._all() if _words(process)[:1] == ["ray::Keeper"]]
        return found

    def routers(self) -> list[psutil.Process]:
        """All processes of routers."""
        return [process for process in self._all() if _words(process)[2:4] == ["-m", "penstock.router"]]

    def processes(self, name: str) -> list[psutil.Process]:
        """The cluster's processes that run a program of Ray's."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.name() == name and str(self.folder) in " ".join(process.cmdline()) and is_alive(process):
                    found.append(process)
        return found

    def stop(self) -> None:
        """Kills all that is left."""
        for process in self._all():
            send(process, signal.SIGKILL)
        if self._driver is not None:
            self._driver.communicate()

    def _all(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if _is_of(process, str(self.folder))]

    def _run(self, arguments: Sequence[str]) -> str:
        try:
            done = subprocess.run([self._python, "-P", *arguments], env=self._environment, capture_output=True,
                                  text=True, check=False, timeout=180)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{arguments} does not end: {error.stdout!r} {error.stderr!r}") from error
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout


def _is_of(process: psutil.Process, folder: str) -> bool:
    """Tells whether a process was started with this folder for temporary files."""
    with suppress(psutil.Error):
        return process.environ().get("TMPDIR") == folder
    return False


def _words(process: psutil.Process) -> list[str]:
    """Returns the command of a process; none once it has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


@contextmanager
def ray_cluster(python: Path) -> Iterator[RayCluster]:
    """Yields a cluster without nodes, and leaves none of its processes behind."""
    with tempfile.TemporaryDirectory(prefix="pr-", dir="/tmp", ignore_cleanup_errors=True) as folder:  # a short path
        cluster = RayCluster(python, Path(folder))
        try:
            yield cluster
        finally:
            cluster.stop()
            time.sleep(0.2)
