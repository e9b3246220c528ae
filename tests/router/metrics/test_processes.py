"""The series of processes, of real ones, and of a folder like /proc."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.processes import Processes, name_of
from tests.fakes import LIMITS

SHARD = ["python", "-P", "-m", "penstock.shard", "--config", json.dumps({"rank": 3}), "--signs-fd", "9"]


def router(role: str, number: int) -> list[str]:
    return ["python", "-P", "-m", "penstock.router", "--config", json.dumps({"role": role, "number": number})]


@pytest.mark.parametrize(("command", "name"), [
    (SHARD, "shard-3"), (router("alone", 0), "router"), (router("engine", 0), "engine"),
    (router("front", 2), "front-2"), (["python", "-m", "penstock.shard"], None), (["sleep", "9"], None),
    (["cat", "penstock.shard", "--config", "x"], None), (["cat", "penstock.shard", "--config", "{}"], None),
    (["cat", "penstock.shard", "--config", "5"], None), ([""], None)])
def test_names(command: list[str], name: str | None) -> None:
    assert name_of(command) == name


def test_real_processes() -> None:
    """This process as the launcher, and a child that looks like a shard."""
    code = "import sys, time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n" \
           "print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, *SHARD[3:]], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        text = Metrics(LIMITS, processes=Processes(os.getpid())).exposition().decode()
        child.communicate()
    series = {name: float(value) for name, value in (
        line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("process_"))}
    assert 0.2 <= series['process_cpu_seconds_total{process="shard-3"}'] < 5
    for name in ("launcher", "shard-3"):
        assert 1e6 < series[f'process_resident_memory_bytes{{process="{name}"}}'] < 1e11
        assert abs(series[f'process_start_time_seconds{{process="{name}"}}'] - time.time()) < 1e5
        assert series[f'process_open_fds{{process="{name}"}}'] > 2
    assert text.count("# TYPE process_cpu_seconds_total counter\n") == 1
    assert "process_cpu_seconds{" not in text


def test_each_name_is_there_once(tmp_path: Path) -> None:
    """Also while one shard ends and the next in its place starts; twice the same series is an error to Prometheus."""
    children = tmp_path / "1/task/1/children"
    children.parent.mkdir(parents=True)
    children.write_text("7 8 9 ")
    for pid in (7, 8):  # the third has ended meanwhile
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text("\0".join(SHARD))
    assert Processes(1, tmp_path)._named() == {"launcher": 1, "shard-3": 8}


def test_where_there_is_no_proc(tmp_path: Path) -> None:
    assert [*Processes(1, tmp_path).collect()] == []
