"""A real launcher over small processes that stand in for shards and router, and write down what happens to them.

As a program it plays each of the three roles; behaviour and the file of events come by environment variables.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from penstock.protos import services, shard_pb2
from penstock.router.config import RouterConfig
from penstock.router.notices import Notice
from penstock.shard.config import ShardConfig
from penstock.system.signs import Sign
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
            sys.executable, "-m", "tests.launcher.stand_in_processes", "launcher", "--model-id", str(DEMO_MODEL),
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
        """Of the children that wrote an event and still live; `name` limits them."""
        known = {int(line.split()[0]): line.split()[1] for line in self._lines()}
        return [pid for pid, who in known.items() if who.startswith(name) and runs(pid)]

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


def _note(name: str, event: str) -> None:
    with open(os.environ["EVENTS"], "a") as events:
        events.write(f"{os.getpid()} {name} {event}\n")


def _has_served_once(name: str) -> bool:
    events = Path(os.environ["EVENTS"]).read_text()
    return f"{name} ready" in events and f"{name} refuses" not in events


def _live(
    name: str, parent: int, behaviour: str, serve: Callable[[], None] = lambda: None, live: Callable[[], object] = int
) -> None:
    """Until SIGTERM, or until the parent is gone. Words of `behaviour` say how."""
    def on_term(number: int, frame: object) -> None:
        _note(name, "SIGTERM")
        if "deaf" not in behaviour:
            time.sleep(0.2)
            _note(name, "ended")
            os._exit(0)
    signal.signal(signal.SIGTERM, on_term)
    if "fails" in behaviour:
        _note(name, "fails")
        sys.exit(f"{name}: the checkpoint is damaged")
    if "refuses" in behaviour or ("forgets" in behaviour and _has_served_once(name)):
        _note(name, "refuses")
        print(f"{name}: these settings can't be met", file=sys.stderr)
        sys.exit(2)
    if "loads" in behaviour:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    else:
        serve()
    _note(name, "ready")
    while os.getppid() == parent:
        live()
        time.sleep(0.05)
    _note(name, "orphaned")


class _Health:
    """Tells of steps: SIGUSR1 begins one and SIGUSR2 ends it; `steps` in the behaviour is one at the start, after which
    the shard is ready."""

    def __init__(self, name: str, behaviour: str) -> None:
        self._name = name
        self._crashes = "crashes" in behaviour
        self._begun = self._ended = int("steps" in behaviour)
        self._began_at = time.monotonic()
        self._answers: list[tuple[int, int]] = []
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _begin(self, number: int, frame: object) -> None:
        self._began_at = time.monotonic()
        self._begun += 1

    def _end(self, number: int, frame: object) -> None:
        self._ended += 1

    def Health(self, request: shard_pb2.HealthRequest, context: grpc.ServicerContext) -> shard_pb2.HealthReply:
        """Notes, and may crash, when it gives an answer for the second time: who asks again has got the first."""
        steps = self._begun, self._ended
        self._answers.append(steps)
        if self._answers.count(steps) == 2:
            _note(self._name, f"told {self._ended} of {self._begun}")
            if self._crashes:
                print(f"{self._name}: out of memory", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return shard_pb2.HealthReply(steps_begun=self._begun, steps_ended=self._ended,
                                     began_seconds_ago=time.monotonic() - self._began_at if self._begun else 0.0)


def _shard(arguments: Sequence[str]) -> None:
    given = ShardConfig.from_argv(arguments)
    name, behaviour = f"shard-{given.rank}", os.environ.get(f"SHARD_{given.rank}", "")
    if given.rendezvous.startswith("file://"):
        Path(f"{given.rendezvous.removeprefix('file://')}-{given.rank}").touch(exist_ok=False)
    server = grpc.server(ThreadPoolExecutor(1))
    services.serve(server, shard_pb2, _Health(name, behaviour))

    def serve() -> None:
        assert given.signs_fd is not None
        if "hangs" in behaviour:
            os.write(given.signs_fd, Sign.ALIVE)
            _note(name, "hangs")
            time.sleep(100)
        server.add_insecure_port(given.listen)
        server.start()
        if "steps" in behaviour:
            os.write(given.signs_fd, Sign.READY)

    assert given.parent_pid is not None
    _live(name, given.parent_pid, behaviour, serve)


def _serve_clients(fd: int) -> None:
    listener = socket.socket(fileno=fd)
    listener.listen()
    while True:
        client, _ = listener.accept()
        with client:
            client.sendall(b"served")


def _router(arguments: Sequence[str]) -> None:
    config = RouterConfig.from_argv(arguments)
    behaviour = os.environ.get("ROUTER", "")

    def serve() -> None:
        if "listens" in behaviour:
            threading.Thread(target=_serve_clients, args=(config.listen_fd,), daemon=True).start()
        if "dawdles" in behaviour:
            _note("router", "dawdles")
            time.sleep(2)
        signal.signal(signal.SIGHUP, lambda number, frame: _note("router", "SIGHUP"))
        if "useless" not in behaviour:
            os.write(config.signs_fd, Sign.READY)

    def live() -> None:
        os.write(config.signs_fd, Sign.ALIVE)
        with suppress(BlockingIOError):
            notices = os.read(config.notices_fd, 100)
            if Notice.LOADING in notices:
                _note("router", "hears of progress")
            if Notice.GIVEN_UP in notices:
                _note("router", "hears that the shards are given up")
                os._exit(0)

    os.set_blocking(config.notices_fd, False)
    _live("router", os.getppid(), behaviour, serve, live)


def _launcher(arguments: Sequence[str]) -> None:
    from penstock.launcher import launch as launcher
    from penstock.launcher import programs, progress_watch, watch
    from penstock.launcher.processes import Program
    from penstock.system import child_environment
    watch.POLL_SECONDS, watch.CALL_SECONDS = 0.05, 0.5
    progress_watch.POLL_SECONDS = 0.05
    launcher.LEAST_SILENCE_SECONDS = 1.5
    programs.program_of = lambda name, module, arguments: Program(
        name, [sys.executable, __file__, module, *arguments], gives_signs=True)
    child_environment.for_shard = child_environment.for_router = lambda: dict(os.environ)
    launcher.main(list(arguments))


if __name__ == "__main__":
    {"launcher": _launcher, "shard": _shard, "router": _router}[sys.argv[1]](sys.argv[2:])
