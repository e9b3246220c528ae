"""The server that is disturbed: started as a user would, with a checkpoint, a disk and a cgroup of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import psutil

from penstock.bench.programs.children import free_port
from tests.cgroups import MemoryCgroup, unlimited_cgroup
from tests.e2e.server import Server, launcher_command
from tests.faults.schedule import Needs
from tests.faults.system import can_open_sockets, small_disk
from tests.paths import DEMO_MODEL
from tests.processes import is_alive, send

Found = TypeVar("Found")

NUM_SHARDS = 2
STEP_TIMEOUT = 3
DISK_BYTES = 1 << 20
FLAGS = ["--num-shard", str(NUM_SHARDS), "--step-timeout", str(STEP_TIMEOUT), "--kv-memory", "64MiB",
         "--enable-prefill-logprobs"]
PATIENCE_SECONDS = 90.0
"""How long a server may take to be as it should be; several times what it takes on a busy machine."""
POLL_SECONDS = 0.05


class Broken(Exception):
    """Raised when the server did what no fault allows."""


class Scene:
    """A server and what it uses, which outlives it: the next one is started in its place."""

    def __init__(self, folder: Path, can_mount: bool, cgroup: MemoryCgroup | None) -> None:
        self.folder = folder
        self.model = folder / "checkpoint"
        self.temporary = folder / "tmp"
        self.cgroup = cgroup
        self.possible = {Needs.NOTHING} | {need for need, can in (
            (Needs.MOUNT, can_mount), (Needs.CGROUP, cgroup is not None), (Needs.SOCKETS, can_open_sockets())) if can}
        self.port = free_port()
        self.log = folder / "server.log"
        self.server: Server
        self.orphans: list[psutil.Process] = []
        """The processes of the server that was ended last, which may outlive its launcher for a while."""
        shutil.copytree(DEMO_MODEL, self.model)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def launcher(self) -> psutil.Process:
        return psutil.Process(self.server.process.pid)

    def start(self) -> None:
        """Starts a server in the place of the one that has ended."""
        command = launcher_command(self.model, self.port, *FLAGS)
        with self.log.open("ab") as output:
            process = subprocess.Popen(self.cgroup.command(command) if self.cgroup else command,
                                       stdout=output, stderr=subprocess.STDOUT,
                                       env={**os.environ, "TMPDIR": str(self.temporary)})
        self.server = Server(process, self.port, self.log)

    async def until(self, what: str, look: Callable[[], Found]) -> Found:
        """Waits for what must come, and returns what was found then. Raises Broken if it does not come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := look()):
            if time.monotonic() > deadline:
                raise Broken(f"after {PATIENCE_SECONDS:g} s it was still not so that {what}")
            await asyncio.sleep(POLL_SECONDS)
        return found

    async def shard(self, rank: int) -> psutil.Process:
        """The shard of a rank, as soon as there is one: it may just be started again."""
        [found] = await self.until(
            f"shard {rank} runs", lambda: [process for each, process in self.server.shards().items() if each == rank])
        return found

    async def only(self, module: str) -> psutil.Process:
        """A process that runs a module, as soon as there is one."""
        return (await self.until(f"{module} runs", lambda: self.server.children(module)))[0]

    async def until_gone(self, processes: list[psutil.Process]) -> None:
        await self.until(f"{processes} are gone", lambda: not any(map(is_alive, processes)))

    async def until_ready(self, session: aiohttp.ClientSession) -> None:
        """Waits until requests are computed again and all processes are there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (len(self.server.shards()) == NUM_SHARDS and await self._answers(session)):
            if (status := self.server.process.poll()) is not None:
                raise Broken(f"the launcher ended with {status}")
            if time.monotonic() > deadline:
                raise Broken(f"the server was not ready within {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(POLL_SECONDS)

    async def _answers(self, session: aiohttp.ClientSession) -> bool:
        body = {"inputs": "import", "parameters": {"max_new_tokens": 1}}
        try:
            async with session.get(f"{self.url}/readyz") as response:
                if response.status != 200:
                    return False
            async with session.post(f"{self.url}/generate", json=body) as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Yields a scene, in an empty folder, whose server has not been started; afterwards nothing of it runs."""
    with small_disk(folder / "tmp", DISK_BYTES) as can_mount, unlimited_cgroup() as cgroup:
        made = Scene(folder, can_mount, cgroup)
        try:
            yield made
        finally:
            if hasattr(made, "server"):
                _end(made)


def _end(made: Scene) -> None:
    everyone = [*made.orphans]
    if made.server.process.poll() is None:
        everyone += [made.launcher, *made.server.processes()]
    for process in everyone:
        send(process, signal.SIGKILL)
    made.server.process.wait()
    psutil.wait_procs(everyone, timeout=PATIENCE_SECONDS)
