"""What cgroups leave of a machine: files as the kernel writes them, and where a test may make one, a real cgroup."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.shard.devices import machine
from tests.cgroups import memory_cgroup

GIB = 1 << 30


def proc(folder: Path, cgroup: str, mountinfo: str) -> Path:
    """A /proc with these memberships and mounts, and 8 GiB available."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(cgroup)
    (folder / "proc/self/mountinfo").write_text(mountinfo.replace("ROOT", str(folder)))
    (folder / "proc/meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n")
    return folder / "proc"


def fill(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def test_no_cgroups(tmp_path: Path) -> None:
    assert machine.limits(tmp_path) == machine.Limits()
    assert 1 << 20 < machine.available_memory() < 1 << 50
    assert machine.host_memory(tmp_path) > 1 << 20, "of the system, if there is no /proc"


def test_a_limit_of_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulimit -v`: the process has mapped 1 GiB of them."""
    root = proc(tmp_path, "", "")
    (root / "self/statm").write_text(f"{GIB // os.sysconf('SC_PAGE_SIZE')} 1 1 1 0 1 0\n")
    monkeypatch.setattr(machine.resource, "getrlimit", lambda kind: (3 * GIB, 4 * GIB))
    assert machine.available_memory(root) == 2 * GIB
    assert "8.00 GiB available, 2.00 GiB within the limit of `ulimit -v`; " in machine.describe(4, root)
    monkeypatch.setattr(machine.resource, "getrlimit", lambda kind: (GIB // 2, 4 * GIB))
    assert machine.available_memory(root) == 0
    monkeypatch.undo()
    assert machine.available_memory(root) == 8 * GIB


def test_version_2_and_the_limits_of_all_parents(tmp_path: Path) -> None:
    fill(tmp_path / "cg/a/b", {"memory.max": "max", "memory.high": str(3 * GIB), "memory.current": str(GIB),
                               "memory.stat": f"anon 5\ninactive_file {GIB // 2}", "cpu.max": "max 100000"})
    fill(tmp_path / "cg/a", {"memory.max": str(2 * GIB), "memory.high": "max", "memory.current": str(GIB),
                             "memory.stat": "inactive_file 0", "cpu.max": "150000 100000"})
    fill(tmp_path / "cg", {"cgroup.procs": ""})
    root = proc(tmp_path, "0::/a/b\n", "30 23 0:26 / ROOT/cg rw,nosuid - cgroup2 cgroup2 rw\n")
    assert machine.limits(root) == machine.Limits(GIB, tmp_path / "cg/a", 1.5, tmp_path / "cg/a")
    assert machine.available_memory(root) == GIB
    assert machine.describe(4, root) == (
        f"memory: 8.00 GiB available, 1.00 GiB within the limit of {tmp_path}/cg/a; processors: 4 cores, 1.5 "
        f"processors' time within the limit of {tmp_path}/cg/a")
    (tmp_path / "cg/a/memory.max").write_text("max")
    assert machine.limits(root).memory == 5 * GIB // 2, "what is cached of files can be had again"


def test_version_1(tmp_path: Path) -> None:
    fill(tmp_path / "memory/docker/c", {
        "memory.limit_in_bytes": str(600 << 20), "memory.usage_in_bytes": str(100 << 20),
        "memory.stat": f"cache 7\ntotal_inactive_file {50 << 20}"})
    fill(tmp_path / "memory", {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": str(GIB)})
    fill(tmp_path / "cpu/docker/c", {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"})
    fill(tmp_path / "cpu", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    root = proc(tmp_path, "4:memory:/docker/c\n1:cpu,cpuacct:/docker/c\n0::/\n",
                "35 31 0:32 / ROOT/memory rw - cgroup cgroup rw,memory\n32 31 0:29 / ROOT/cpu rw - cgroup cgroup "
                "rw,cpu,cpuacct\n")
    assert machine.limits(root) == machine.Limits(550 << 20, tmp_path / "memory/docker/c", 0.5,
                                                  tmp_path / "cpu/docker/c")


@pytest.mark.parametrize("mounted", ["/docker/c", "/../.."])
def test_a_container_that_sees_its_own_part_alone(tmp_path: Path, mounted: str) -> None:
    fill(tmp_path / "cg", {"memory.max": str(GIB), "memory.current": "0"})
    root = proc(tmp_path, "0::/docker/c\n", f"30 23 0:26 {mounted} ROOT/cg ro - cgroup2 cgroup2 rw\n")
    assert machine.limits(root).memory == GIB


def test_a_real_cgroup() -> None:
    limit, code = 600 << 20, "from penstock.shard.devices import machine; print(machine.limits().memory)"
    with memory_cgroup(limit) as cgroup:
        command = cgroup.command([sys.executable, "-c", code])
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert limit - (100 << 20) < int(run.stdout) <= limit
