"""Groups of shards and the router that knows them, for as long as they are measured."""

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from click import ClickException

from penstock.bench.programs.children import Child, free_port
from penstock.bench.server.running import wait_until_ready

PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
SCRIPTED = [sys.executable, "-P", "-m", "penstock.bench.programs.scripted_penstock"]
"""The same command, whose shards are scripts that answer at once."""
START_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Cell:
    """A router, and its groups with the names that the router has for them."""

    url: str
    port: int
    router: Child
    groups: dict[str, Child]

    def series(self) -> dict[str, float]:
        """Returns the router's metrics by their names and labels."""
        with urlopen(f"{self.url}/metrics", timeout=10) as response:
            lines = [line.rpartition(" ") for line in response.read().decode().splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in lines}

    def wait_until_serving(self, number: int) -> None:
        """Waits until so many groups serve. Raises ClickException if they do not within START_SECONDS."""
        deadline = time.monotonic() + START_SECONDS
        while (found := self.series()['penstock_groups{state="serving"}']) != number:
            if time.monotonic() > deadline:
                raise ClickException(f"{found:.0f} of {number} groups serve after {START_SECONDS:.0f} s")
            time.sleep(0.05)


@contextmanager
def cell(
    model: Path, number: int, flags: Sequence[str] = ("--threads", "1"), router_flags: Sequence[str] = (),
    penstock: Sequence[str] = PENSTOCK, environment: Mapping[str, str] | None = None,
) -> Iterator[Cell]:
    """Starts so many groups of `model`, with more variables in their environment, and a router, and yields them once
    all serve. Raises ClickException if one of them ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = [f"127.0.0.1:{free_port()}" for _ in range(number)]
        groups = {name: stack.enter_context(Child(
            f"group-{name}", [*penstock, "group", str(model), "--listen", name, *flags], folder,
            dict(environment or {}))) for name in names}
        port = free_port()
        router = stack.enter_context(Child("router", [
            *penstock, "serve", str(model), "--groups", ",".join(names), "--hostname", "127.0.0.1", "--port", str(port),
            *router_flags], folder, {}))
        found = Cell(f"http://127.0.0.1:{port}", port, router, groups)
        wait_until_ready(router, found.url)
        found.wait_until_serving(number)
        yield found
