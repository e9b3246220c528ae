"""How soon a server answers, and how much memory it takes: `python -m penstock.bench.server.start MODEL [FLAG ...]`.

Flags are the launcher's. Each round starts the server anew and counts the seconds from the command to the end of the
first answer, one token. The memory is that of all its processes at rest after that: what they share counts once, and
all of the memory of keys and values counts, used or not. At last come the seconds of each phase of the last start.
"""

import json
import os
import re
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from tqdm import tqdm

from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import CHECKPOINT, own_server

BODY = json.dumps({"inputs": "def open(path):", "parameters": {"max_new_tokens": 1}}).encode()
REST_SECONDS = 3.0
"""How long the server may reserve memory after it began to serve."""
TIMEOUT = 900.0


@dataclass(frozen=True, slots=True)
class Start:
    """The measurement of one start."""

    seconds: float
    num_bytes: int
    kv_tokens: int
    phases: str


def measure(model: Path, flags: tuple[str, ...]) -> Start:
    """Starts a server, and ends it once it has been measured. Raises ClickException if it does not answer."""
    port = free_port()
    server = own_server(model, port, flags)
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        with Child(server.name, server.command, Path(folder), server.environment) as child:
            wait_for_answer(child, f"http://127.0.0.1:{port}/generate", start + TIMEOUT)
            seconds = time.perf_counter() - start
            time.sleep(REST_SECONDS)
            found = held_bytes(child)
            [kv_tokens] = re.findall(r"(\d+) KV tokens", child.output)
            phases = re.findall(r"ready in .*", child.output)[0]
            return Start(seconds, found, int(kv_tokens), phases)


def wait_for_answer(child: Child, url: str, deadline: float, body: bytes | None = BODY) -> None:
    """Waits until the server answers a POST with this body, or a GET without one."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    while time.perf_counter() < deadline:
        if child.process.poll() is not None:
            raise child.failure(f"ended with {child.process.returncode} before it answered")
        with suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(request, timeout=TIMEOUT):
            return
        time.sleep(0.01)
    raise child.failure(f"did not answer within {TIMEOUT:g} s")


def held_bytes(child: Child) -> int:
    """Returns the memory of all processes of a server."""
    files: dict[int, int] = {}
    private = 0
    for process in child.family():
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        sizes = dict(re.findall(r"^(Pss|Pss_Shmem):\s+(\d+) kB", rollup, re.MULTILINE))
        private += int(sizes["Pss"]) - int(sizes["Pss_Shmem"])
        for fd in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(fd).startswith("/memfd:"):
                    found = fd.stat()
                    files[found.st_ino] = found.st_blocks * 512
    return private * 1024 + sum(files.values())


@click.command(help=__doc__, context_settings={"ignore_unknown_options": True})
@click.argument("model", type=CHECKPOINT)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
def main(model: Path, flags: tuple[str, ...], rounds: int) -> None:
    exit_on_sigterm()
    for number in tqdm(range(1, rounds + 1), unit="start", leave=False):
        found = measure(model, flags)
        tqdm.write(f"{number}: {found.seconds:.2f} s to the first answer, {found.num_bytes / 1e6:.0f} MB with "
                   f"{found.kv_tokens} KV tokens")
    print(found.phases)


if __name__ == "__main__":
    main()
