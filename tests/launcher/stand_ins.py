"""Small programs that stand in for shards and router, and write down what happens to them.

They import little and read their settings as plain JSON, since many are started; tests/launcher/test_config.py looks
whether the real ones can read them. Behaviour and the file of events come by environment variables.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.system.signs import Sign

LOADING, GIVEN_UP = b"l", b"g"
"""Two of `penstock.router.notices`, which the router does not import."""


def given(arguments: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Returns the settings and the pipe for signs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=json.loads)
    parser.add_argument("--signs-fd", type=int)
    told = parser.parse_args(arguments)
    return told.config, told.signs_fd


def note(name: str, event: str) -> None:
    with open(os.environ["EVENTS"], "a") as events:
        events.write(f"{os.getpid()} {name} {event}\n")


def has_served_once(name: str) -> bool:
    events = Path(os.environ["EVENTS"]).read_text()
    return f"{name} ready" in events and f"{name} refuses" not in events


def live(
    name: str, parent: int, behaviour: str, serve: Callable[[], None] = lambda: None, look: Callable[[], object] = int
) -> None:
    """Until SIGTERM, or until the parent is gone. Words of `behaviour` say how."""
    def on_term(number: int, frame: object) -> None:
        note(name, "SIGTERM")
        if "deaf" not in behaviour:
            time.sleep(0.1)
            note(name, "ended")
            os._exit(0)
    signal.signal(signal.SIGTERM, on_term)
    if "fails" in behaviour:
        note(name, "fails")
        sys.exit(f"{name}: the checkpoint is damaged")
    if "refuses" in behaviour or ("forgets" in behaviour and has_served_once(name)):
        note(name, "refuses")
        print(f"{name}: these settings can't be met", file=sys.stderr)
        sys.exit(2)
    if "loads" in behaviour:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    else:
        serve()
    note(name, "ready")
    while os.getppid() == parent:
        look()
        time.sleep(0.05)
    note(name, "orphaned")


def shard(arguments: Sequence[str]) -> None:
    """Answers as a shard does about its health: `Health` in this file says how."""
    import grpc

    from penstock.protos import services, shard_pb2

    config, signs = given(arguments)
    rank = config["rank"]
    name, behaviour = f"shard-{rank}", os.environ.get(f"SHARD_{rank}", "")
    if config["rendezvous"].startswith("file://"):
        Path(f"{config['rendezvous'].removeprefix('file://')}-{rank}").touch(exist_ok=False)
    server = grpc.server(ThreadPoolExecutor(1))
    services.serve(server, shard_pb2, Health(name, behaviour))

    def serve() -> None:
        if "hangs" in behaviour:
            os.write(signs, Sign.ALIVE)
            note(name, "hangs")
            time.sleep(100)
        server.add_insecure_port(config["listen"])
        server.start()
        if "steps" in behaviour:
            os.write(signs, Sign.READY)

    live(name, config["parent_pid"], behaviour, serve)


class Health:
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

    def Health(self, request: Any, context: Any) -> Any:
        """Notes, and may crash, when it gives an answer for the second time: who asks again has got the first."""
        from penstock.protos import shard_pb2

        steps = self._begun, self._ended
        self._answers.append(steps)
        if self._answers.count(steps) == 2:
            note(self._name, f"told {self._ended} of {self._begun}")
            if self._crashes:
                print(f"{self._name}: out of memory", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return shard_pb2.HealthReply(steps_begun=self._begun, steps_ended=self._ended,
                                     began_seconds_ago=time.monotonic() - self._began_at if self._begun else 0.0)


def serve_clients(fd: int) -> None:
    listener = socket.socket(fileno=fd)
    listener.listen()
    while True:
        client, _ = listener.accept()
        with client:
            client.sendall(b"served")


def router(arguments: Sequence[str]) -> None:
    """Takes notices, and if it is to listen, clients."""
    config, signs = given(arguments)
    behaviour = os.environ.get("ROUTER", "")

    def serve() -> None:
        if "listens" in behaviour:
            threading.Thread(target=serve_clients, args=(config["listen_fd"],), daemon=True).start()
        if "dawdles" in behaviour:
            note("router", "dawdles")
            time.sleep(2)
        signal.signal(signal.SIGHUP, lambda number, frame: note("router", "SIGHUP"))
        if "useless" not in behaviour:
            os.write(signs, Sign.READY)

    def look() -> None:
        os.write(signs, Sign.ALIVE)
        with suppress(BlockingIOError):
            notices = os.read(config["notices_fd"], 100)
            if LOADING in notices:
                note("router", "hears of progress")
            if GIVEN_UP in notices:
                note("router", "hears that the shards are given up")
                os._exit(0)

    os.set_blocking(config["notices_fd"], False)
    live("router", os.getppid(), behaviour, serve, look)


if __name__ == "__main__":
    {"shard": shard, "router": router}[sys.argv[1]](sys.argv[2:])
