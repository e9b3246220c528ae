"""The faults: what each does to the server. A fault returns once what it hurt is gone, or unhurt again."""

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.faults import odd_clients
from tests.faults.clients import Clients
from tests.faults.ledger import Strike
from tests.faults.scene import NUM_SHARDS, Broken, Scene
from tests.faults.schedule import Event
from tests.faults.system import cut, filled, sockets_of
from tests.paths import ROOT
from tests.processes import is_alive, send

HEADROOM_BYTES = 64 << 20
NUM_FREE_FDS = 2


@dataclass(frozen=True, slots=True)
class Stage:
    """What a fault acts on."""

    scene: Scene
    clients: Clients
    event: Event
    strike: Strike

    def note_struck(self) -> None:
        """Notes that the damage is done."""
        self.strike.struck_at = time.monotonic()


async def _signal_shards(stage: Stage, number: signal.Signals) -> list[psutil.Process]:
    shards = [await stage.scene.shard(rank) for rank in stage.event.ranks]
    for shard in shards:
        send(shard, number)
    stage.note_struck()
    return shards


def shards_end_by(number: signal.Signals) -> "Fault":
    async def fault(stage: Stage) -> None:
        await stage.scene.until_gone(await _signal_shards(stage, number))

    return fault


async def kill_shards_twice(stage: Stage) -> None:
    """The second time comes while the new ones start, load, measure, or have just begun to compute again."""
    kill = shards_end_by(signal.SIGKILL)
    await kill(stage)
    await stage.scene.shard(0)
    await asyncio.sleep(stage.event.seconds)
    await kill(stage)


async def stop_shards_for_a_while(stage: Stage) -> None:
    shards = await _signal_shards(stage, signal.SIGSTOP)
    await asyncio.sleep(stage.event.seconds)
    for shard in shards:
        send(shard, signal.SIGCONT)


def router_ends_by(number: signal.Signals) -> "Fault":
    async def fault(stage: Stage) -> None:
        router = await stage.scene.only("router")
        send(router, number)
        if number is signal.SIGKILL:
            await stage.scene.until_gone([router])
        stage.note_struck()
        await stage.scene.until_gone([router])

    return fault


async def stop_router_for_a_while(stage: Stage) -> None:
    await _stop_for_a_while(stage, await stage.scene.only("router"))


async def stop_launcher_for_a_while(stage: Stage) -> None:
    await _stop_for_a_while(stage, stage.scene.launcher)


async def _stop_for_a_while(stage: Stage, process: psutil.Process) -> None:
    send(process, signal.SIGSTOP)
    await asyncio.sleep(stage.event.seconds)
    send(process, signal.SIGCONT)


async def kill_template_processes(stage: Stage) -> None:
    processes = await _template_processes(stage)
    for process in processes:
        send(process, signal.SIGKILL)
    stage.note_struck()
    await stage.scene.until_gone(processes)


async def stop_template_processes(stage: Stage) -> None:
    """One is found by the conversation that it does not render. Those that no other one needed go on after that."""
    processes = await _template_processes(stage)
    for process in processes:
        send(process, signal.SIGSTOP)
    stage.note_struck()
    await stage.scene.until("a stopped template process is found", lambda: not all(map(is_alive, processes)))
    for process in processes:
        send(process, signal.SIGCONT)


async def _template_processes(stage: Stage) -> list[psutil.Process]:
    """The processes that render, as soon as there are any."""
    await stage.scene.only("router.chat.sandbox")
    return stage.scene.server.children("router.chat.sandbox")


async def take_file_descriptors(stage: Stage) -> None:
    router = await stage.scene.only("router")
    before = router.rlimit(psutil.RLIMIT_NOFILE)
    router.rlimit(psutil.RLIMIT_NOFILE, (router.num_fds() + NUM_FREE_FDS, before[1]))
    await asyncio.sleep(stage.event.seconds)
    router.rlimit(psutil.RLIMIT_NOFILE, before)


async def kill_launcher(stage: Stage) -> None:
    await _replace_server(stage, signal.SIGKILL)


async def end_launcher(stage: Stage) -> None:
    await _replace_server(stage, signal.SIGTERM)


async def _replace_server(stage: Stage, number: signal.Signals) -> None:
    """Ends the server, sees that nothing of it is left once its last answers are given, and starts the next."""
    scene = stage.scene
    scene.orphans = scene.server.processes()
    scene.server.process.send_signal(number)
    await scene.until("the launcher has ended", lambda: scene.server.process.poll() is not None)
    if number is signal.SIGTERM and scene.server.process.returncode:
        raise Broken(f"the launcher ended with {scene.server.process.returncode} after SIGTERM")
    await scene.until_gone(scene.orphans)
    stage.note_struck()
    if left := list(scene.temporary.iterdir()):
        raise Broken(f"the server that ended has left {left}")
    scene.start()


async def cut_off_router(stage: Stage) -> None:
    """Cuts the router's connections to some shards."""
    router = await stage.scene.only("router")
    names = {f"shard-{rank}" for rank in stage.event.ranks}
    for connection in sockets_of(router):
        if _peer_name(connection) in names:
            cut(connection)
    stage.note_struck()


async def cut_off_shards(stage: Stage) -> None:
    """Cuts the connections that shards hold to one another."""
    shard = await stage.scene.shard(0)
    for connection in sockets_of(shard):
        if connection.family == socket.AF_UNIX and "meet-" in str(connection.getsockname()):
            cut(connection)
    stage.note_struck()


async def remove_folder_and_kill_shards(stage: Stage) -> None:
    _remove_socket_folder(stage.scene)
    await shards_end_by(signal.SIGKILL)(stage)


async def remove_folder_and_kill_router(stage: Stage) -> None:
    _remove_socket_folder(stage.scene)
    await router_ends_by(signal.SIGKILL)(stage)


def _remove_socket_folder(scene: Scene) -> None:
    for folder in scene.temporary.iterdir():
        shutil.rmtree(folder)


async def fill_disk_and_kill_shards(stage: Stage) -> None:
    with filled(stage.scene.temporary):
        await shards_end_by(signal.SIGKILL)(stage)
        await asyncio.sleep(stage.event.seconds)


async def lose_checkpoint_and_kill_shards(stage: Stage) -> None:
    await _while_away(stage, stage.scene.model / "model.safetensors", shards_end_by(signal.SIGKILL))


async def lose_tokenizer_and_kill_router(stage: Stage) -> None:
    await _while_away(stage, stage.scene.model / "tokenizer.json", router_ends_by(signal.SIGKILL))


async def _while_away(stage: Stage, file: Path, fault: "Fault") -> None:
    """Moves a file away while a fault comes and for some time after that."""
    away = file.with_suffix(".away")
    os.rename(file, away)
    try:
        await fault(stage)
        await asyncio.sleep(stage.event.seconds)
    finally:
        os.rename(away, file)


async def run_out_of_memory(stage: Stage) -> None:
    """Another process takes all that the cgroup's limit leaves, until the system kills a shard for it."""
    scene, cgroup = stage.scene, stage.scene.cgroup
    assert cgroup is not None
    victim = await scene.shard(stage.event.seed % NUM_SHARDS)
    cgroup.set_limit(cgroup.charged + HEADROOM_BYTES)
    hog = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.hog", str(cgroup.folder), str(victim.pid), cwd=ROOT)
    try:
        await scene.until("the system kills a shard for want of memory", lambda: not is_alive(victim))
        stage.note_struck()
    finally:
        with suppress(ProcessLookupError):
            hog.kill()
        await hog.wait()
        cgroup.unlimit()


async def leave(stage: Stage) -> None:
    await odd_clients.leave(stage.clients, _address(stage), stage.event.seed)


async def read_slowly(stage: Stage) -> None:
    await odd_clients.read_slowly(stage.clients, _address(stage), stage.event.seed)


async def half_close(stage: Stage) -> None:
    await odd_clients.half_close(stage.clients, _address(stage), stage.event.seed)


async def send_half(stage: Stage) -> None:
    await odd_clients.send_half(_address(stage), stage.event.seconds, stage.event.seed)


def _address(stage: Stage) -> tuple[str, int]:
    return "127.0.0.1", stage.scene.port


Fault = Callable[[Stage], Awaitable[None]]
FAULTS: dict[str, Fault] = {
    "shards killed": shards_end_by(signal.SIGKILL),
    "shards killed, and again as they start": kill_shards_twice,
    "shards crash": shards_end_by(signal.SIGSEGV),
    "shards asked to end": shards_end_by(signal.SIGTERM),
    "shards stopped": shards_end_by(signal.SIGSTOP),
    "shards stopped for a while": stop_shards_for_a_while,
    "router killed": router_ends_by(signal.SIGKILL),
    "router asked to end": router_ends_by(signal.SIGTERM),
    "router stopped": router_ends_by(signal.SIGSTOP),
    "router stopped for a while": stop_router_for_a_while,
    "router out of file descriptors": take_file_descriptors,
    "template processes killed": kill_template_processes,
    "template processes stopped": stop_template_processes,
    "launcher killed": kill_launcher,
    "launcher asked to end": end_launcher,
    "launcher stopped for a while": stop_launcher_for_a_while,
    "router cut off from shards": cut_off_router,
    "shards cut off from one another": cut_off_shards,
    "socket folder removed, shards killed": remove_folder_and_kill_shards,
    "socket folder removed, router killed": remove_folder_and_kill_router,
    "disk full, shards killed": fill_disk_and_kill_shards,
    "checkpoint away, shards killed": lose_checkpoint_and_kill_shards,
    "tokenizer away, router killed": lose_tokenizer_and_kill_router,
    "out of memory": run_out_of_memory,
    "clients leave": leave,
    "clients read slowly": read_slowly,
    "clients half-close": half_close,
    "clients send half a request": send_half,
}
"""By the name of their kind."""


def _peer_name(connection: socket.socket) -> str:
    """Returns the file name of the socket that a connection leads to; empty if it leads elsewhere."""
    try:
        peer = connection.getpeername()
    except OSError:
        return ""
    return os.path.basename(peer) if isinstance(peer, str) else ""
