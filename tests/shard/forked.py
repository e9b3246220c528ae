"""Shards forked from a process that has imported all that they import, which is most of what a small one does until it
serves."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.paths import ROOT
from tests.shard.spawned_ranks import CONTEXT, begin_with


class ForkedShard:
    """Runs as `python -m penstock.shard --config CONFIG` does, and is waited for and ended as a Popen is."""

    def __init__(self, config: str, log: Path, variables: Mapping[str, str]) -> None:
        self._process = CONTEXT.Process(target=_run, args=(config, log, dict(variables)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("penstock.shard", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _run(config: str, log: Path, variables: Mapping[str, str]) -> None:
    begin_with(variables)
    os.chdir(ROOT)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    from penstock.shard.__main__ import main

    main(["--config", config])
