"""What is left of a machine within its cgroups."""

import os
import resource
from pathlib import Path

import pytest

from penstock.shard.devices import machine
from penstock.system import cgroups
from tests.cgroup_files import GIB, fill, proc


def test_no_cgroups(tmp_path: Path) -> None:
    assert cgroups.limits(tmp_path) == cgroups.Limits()
    assert 1 << 20 < machine.available_memory() < 1 << 50
    assert machine.host_memory(tmp_path) > 1 << 20, "of the system, if there is no /proc"


def test_a_limit_of_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulimit -v`: the process has mapped 1 GiB of them."""
    root = proc(tmp_path, "", "")
    (root / "self/statm").write_text(f"{GIB // os.sysconf('SC_PAGE_SIZE')} 1 1 1 0 1 0\n")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (3 * GIB, 4 * GIB))
    assert machine.available_memory(root) == 2 * GIB
    assert "8.00 GiB available, 2.00 GiB within the limit of `ulimit -v`; " in machine.describe(4, root)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (GIB // 2, 4 * GIB))
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
    assert cgroups.limits(root) == cgroups.Limits(GIB, tmp_path / "cg/a", 1.5, tmp_path / "cg/a")
    assert machine.available_memory(root) == GIB
    assert machine.describe(4, root) == (
        f"memory: 8.00 GiB available, 1.00 GiB within the limit of {tmp_path}/cg/a; processors: 4 cores, 1.5 "
        f"processors' time within the limit of {tmp_path}/cg/a")
    (tmp_path / "cg/a/memory.max").write_text("max")
    assert cgroups.limits(root).memory == 5 * GIB // 2, "what is cached of files can be had again"
