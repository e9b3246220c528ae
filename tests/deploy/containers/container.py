"""A container of the server's image, which a test runs, asks and ends."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from penstock.bench.programs.children import free_port
from penstock.bench.server.running import is_ready
from tests.deploy.containers.engine import CommandError, Engine
from tests.deploy.containers.images import SERVER

START_SECONDS = 90.0


class Container:
    """A container that was started, by its name, and the address that its port has on this machine."""

    def __init__(self, engine: Engine, name: str, port: int, scheme: str = "http") -> None:
        self.engine, self.name = engine, name
        self.url = f"{scheme}://127.0.0.1:{port}"

    def inspect(self) -> dict[str, Any]:
        """Returns what the engine knows of it."""
        [found] = json.loads(self.engine.docker("inspect", self.name))
        return dict(found)

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.inspect()["State"])

    @property
    def pid(self) -> int:
        """Process 1 of the container, by its number on this machine."""
        return int(self.state["Pid"])

    def log(self) -> str:
        """Returns all that it printed to both outputs."""
        return self.engine.docker("logs", self.name, with_errors=True)

    def run(self, *command: str) -> str:
        """Returns what a command in the container prints."""
        return self.engine.docker("exec", self.name, *command)

    def wait_until_ready(self, seconds: float = START_SECONDS) -> float:
        """Returns the seconds until it served."""
        start = time.monotonic()
        while not is_ready(self.url):
            if not self.state["Running"]:
                raise RuntimeError(f"the container ended with {self.state['ExitCode']}:\n{self.log()}")
            if time.monotonic() > start + seconds:
                raise TimeoutError(f"no answer after {seconds} s:\n{self.log()}")
            time.sleep(0.05)
        return time.monotonic() - start

    def stop(self, grace: int = 100) -> int:
        """Sends what `docker stop` sends, and returns the exit status."""
        self.engine.docker("stop", "--time", str(grace), self.name, seconds=grace + 60)
        return int(self.state["ExitCode"])

    def wait(self, seconds: float = 60) -> int:
        """Returns the exit status once it has ended by itself."""
        return int(self.engine.docker("wait", self.name, seconds=seconds))


@contextmanager
def running(
    engine: Engine, *options: str, arguments: tuple[str, ...] = (), image: str = SERVER, inside: int = 80,
    is_awaited: bool = True,
) -> Iterator[Container]:
    """Runs an image with options of `docker run` and arguments for the launcher, yields it once it serves, if that is
    awaited, and removes it with its volumes. It is asked at a free port, or, in the host's network, at `inside`."""
    port = inside if "host" in options else free_port()
    published = [] if "host" in options else ["--publish", f"127.0.0.1:{port}:{inside}"]
    name = engine.docker("run", "--detach", *published, *options, image, *arguments)
    container = Container(engine, name, port)
    try:
        if is_awaited:
            container.wait_until_ready()
        yield container
    finally:
        with suppress(CommandError):
            engine.docker("rm", "--force", "--volumes", name)
