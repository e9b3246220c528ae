"""A container engine: the one that the machine has, or a private one, for which Debian's packages are enough."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PACKAGES = "docker.io docker-compose iptables mmdebstrap"
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
BRIDGE = Path("/sys/class/net/docker0")
EMPTY = {table: f"*{table}\n:FORWARD ACCEPT [0:0]\nCOMMIT\n" for table in ("filter", "mangle")} | {
    table: f"*{table}\nCOMMIT\n" for table in ("nat", "raw")}
"""Tables without rules, which iptables-save does not print."""
START_SECONDS = 60.0


class NoEngineError(RuntimeError):
    """There is no container engine; the message says what would give one."""


class CommandError(RuntimeError):
    """A command of the engine's ended with another status than 0; the message has all that it printed."""


class Engine:
    """Runs `docker` and `docker-compose` with the variables that lead to one engine."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = {**os.environ, **variables, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}

    def docker(self, *arguments: str | Path, seconds: float = 120, with_errors: bool = False) -> str:
        """Returns what `docker` printed to its output, and to its errors if asked, without the last newline. Raises
        CommandError."""
        return self._run("docker", *arguments, seconds=seconds, with_errors=with_errors)

    def compose(self, folder: Path, *arguments: str, seconds: float = 120, **variables: str) -> str:
        """Returns what `docker-compose` printed in a folder with a compose file, given variables besides its own."""
        return self._run("docker-compose", *arguments, seconds=seconds, folder=folder, variables=variables)

    def has_image(self, name: str) -> bool:
        return bool(self.docker("images", "--quiet", name))

    def _run(
        self, command: str, *arguments: str | Path, seconds: float, folder: Path | None = None,
        with_errors: bool = False, variables: Mapping[str, str] | None = None,
    ) -> str:
        where = {**self.variables, **(variables or {})}
        program = shutil.which(command, path=where["PATH"])
        if program is None:
            raise CommandError(f"{command} is not installed: apt-get install {PACKAGES}")
        ended = subprocess.run([program, *arguments], cwd=folder, env=where, timeout=seconds, text=True, check=False,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT if with_errors else subprocess.PIPE)
        if ended.returncode != 0:
            printed = ended.stdout[-8000:] + (ended.stderr or "")[-4000:]
            raise CommandError(f"{command} {' '.join(map(str, arguments))}\n{printed}")
        return ended.stdout.rstrip("\n")


@contextmanager
def engine() -> Iterator[Engine]:
    """Yields an engine, and ends it if it was started for this. Raises NoEngineError."""
    if _answers(Engine({})):
        yield Engine({})
        return
    missing = [command for command in ("dockerd", "docker-compose", "iptables-save", "mmdebstrap")
               if shutil.which(command) is None]
    if missing or os.geteuid() != 0:
        raise NoEngineError("no container engine answers, and to start one this needs root and the packages "
                            f"{PACKAGES}; missing: {', '.join(missing) or 'root'}")
    with _private() as private:
        yield private


def _answers(candidate: Engine) -> bool:
    try:
        candidate.docker("info", "--format", "{{.ServerVersion}}", seconds=20)
    except (CommandError, subprocess.TimeoutExpired):
        return False
    return True


@contextmanager
def _private() -> Iterator[Engine]:
    """Starts an engine in a folder of its own, and leaves the machine's network as it was."""
    with tempfile.TemporaryDirectory(prefix="engine-", ignore_cleanup_errors=True) as name, _same_network():
        folder = Path(name)
        address = f"unix://{folder}/docker.sock"
        with (folder / "dockerd.log").open("wb") as log:
            daemon = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "dockerd", "--host", address, "--data-root", folder / "data",
                 "--exec-root", folder / "exec", "--pidfile", folder / "dockerd.pid"],
                stdout=log, stderr=subprocess.STDOUT)
        # Debian's client first: another one on the machine may lack what this engine needs.
        found = Engine({"DOCKER_HOST": address, "DOCKER_CONFIG": f"{folder}/config",
                        "PATH": f"/usr/bin:{os.environ['PATH']}"})
        try:
            _wait(found, daemon, folder / "dockerd.log")
            yield found
            running = found.docker("ps", "--all", "--quiet").split()
            if running:
                found.docker("rm", "--force", "--volumes", *running)
        finally:
            daemon.terminate()
            daemon.wait(60)


def _wait(found: Engine, daemon: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(found):
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise NoEngineError(f"dockerd did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)


@contextmanager
def _same_network() -> Iterator[None]:
    """Undoes what dockerd leaves behind: rules of iptables, forwarding, and its bridge."""
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False)
    forward = FORWARD.read_text()
    if saved.returncode != 0 or not os.access(FORWARD, os.W_OK):
        raise NoEngineError(f"an engine may not change this machine's network: {saved.stderr.strip() or FORWARD}")
    had_bridge = BRIDGE.exists()
    try:
        yield
    finally:
        empty = "".join(rules for table, rules in EMPTY.items() if f"*{table}\n" not in saved.stdout)
        subprocess.run(["iptables-restore"], input=saved.stdout + empty, text=True, check=True)
        FORWARD.write_text(forward)
        if not had_bridge:
            subprocess.run(["ip", "link", "delete", BRIDGE.name], capture_output=True, check=False)
