"""The limits of cgroups: files as the kernel writes them, and where a test may make one, a real cgroup."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.system import cgroups
from tests.cgroup_files import GIB, fill, proc
from tests.cgroups import memory_cgroup


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
    assert cgroups.limits(root) == cgroups.Limits(550 << 20, tmp_path / "memory/docker/c", 0.5,
                                                  tmp_path / "cpu/docker/c")


def test_tasks(tmp_path: Path) -> None:
    """The parent has the tighter limit, and others in it have started some."""
    fill(tmp_path / "pids/docker/c", {"pids.max": "48", "pids.current": "3"})
    fill(tmp_path / "pids/docker", {"pids.max": "60", "pids.current": "40"})
    fill(tmp_path / "pids", {"pids.current": "200"})
    root = proc(tmp_path, "8:pids:/docker/c\n", "35 31 0:32 / ROOT/pids rw - cgroup cgroup rw,pids\n")
    assert cgroups.limits(root) == cgroups.Limits(tasks=20, tasks_folder=tmp_path / "pids/docker")
    (tmp_path / "pids/docker/pids.max").write_text("max")
    assert cgroups.limits(root).tasks == 45


@pytest.mark.parametrize("mounted", ["/docker/c", "/../.."])
def test_a_container_that_sees_its_own_part_alone(tmp_path: Path, mounted: str) -> None:
    fill(tmp_path / "cg", {"memory.max": str(GIB), "memory.current": "0"})
    root = proc(tmp_path, "0::/docker/c\n", f"30 23 0:26 {mounted} ROOT/cg ro - cgroup2 cgroup2 rw\n")
    assert cgroups.limits(root).memory == GIB


def test_a_real_cgroup() -> None:
    limit, code = 600 << 20, "from penstock.system import cgroups; print(cgroups.limits().memory)"
    with memory_cgroup(limit) as cgroup:
        command = cgroup.command([sys.executable, "-c", code])
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert limit - (100 << 20) < int(run.stdout) <= limit
