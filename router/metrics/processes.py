"""The series of the server's processes on this machine: launcher, router and shards, under Prometheus' usual names."""

import json
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric, ProcessCollector
from prometheus_client.registry import Collector

_PROC = Path("/proc")
_MODULES = ("penstock.router", "penstock.shard")


class Processes(Collector):
    """Reads from /proc, whenever it is asked, what the `launcher` (a process id) and its children use: processor time,
    memory, open files. The label `process` tells them apart: `launcher`, `router`, or with several processes for
    clients `engine`, `front-0` and so on, and `shard-0` and so on. Elsewhere than on Linux there are no series."""

    def __init__(self, launcher: int, proc: Path = _PROC) -> None:
        self._launcher = launcher
        self._proc = proc

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for name, pid in self._named().items():
            reader = ProcessCollector(pid=lambda pid=pid: pid, proc=str(self._proc),  # type: ignore[misc]
                                      registry=None)
            for metric in reader.collect():
                metric.samples = [sample._replace(labels={"process": name}) for sample in metric.samples]
                found.setdefault(metric.name, Metric(metric.name, metric.documentation.rstrip("."), metric.type))
                found[metric.name].samples += metric.samples
        yield from found.values()

    def _named(self) -> dict[str, int]:
        """Returns the ids of the processes by their names; of two of one name, of which one ends, that of the other."""
        named = {"launcher": self._launcher}
        for file in (self._proc / str(self._launcher) / "task").glob("*/children"):
            for pid in _read(file).split():
                if name := name_of(_read(self._proc / pid / "cmdline").split("\0")):
                    named[name] = int(pid)
        return named


def name_of(command: list[str]) -> str | None:
    """Returns the name of the process that this command line has started; None if it is none of the server's."""
    module = next((each for each in _MODULES if each in command), None)
    if module is None or "--config" not in command[:-1]:
        return None
    try:
        config = json.loads(command[command.index("--config") + 1])
        if module == "penstock.shard":
            return f"shard-{config['rank']}"
        return {"alone": "router", "engine": "engine"}.get(config["role"]) or f"front-{config['number']}"
    except (ValueError, LookupError, TypeError):
        return None


def _read(file: Path) -> str:
    """Returns the content of a file; an empty text if its process has ended meanwhile."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
