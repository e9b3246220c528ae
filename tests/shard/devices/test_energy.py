"""The energy of steps, from folders such as Linux has and from a library such as NVIDIA's driver has."""

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.shard.devices import nvml, rapl
from penstock.shard.devices.energy import Meter, meter_of
from tests.other_user import only_root, other_user
from tests.shard.ranks import make_config

MOST = 262_143_328_850
DRIVER = """
#include <string.h>
static unsigned long long millijoules = 7;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    *handle = &millijoules;
    return strcmp(uuid, "GPU-12ab") ? 6 : 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy) {
    *energy = (*(unsigned long long *)handle)++;
    return 0;
}
"""


class Powercap:
    """A folder of zones as in Linux: of two packages, the first with cores and memory; and other counts of the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for zone, name in {
                "intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram",
                "intel-rapl:1": "package-1", "intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0"}.items():
            (folder / zone).mkdir()
            (folder / zone / "name").write_text(f"{name}\n")
            (folder / zone / "max_energy_range_uj").write_text(f"{MOST}\n")
            self.set(zone, 1000)

    def set(self, zone: str, count: int) -> None:
        (self.folder / zone / "energy_uj").write_text(f"{count}\n")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def powercap(tmp_path: Path) -> Powercap:
    folder = tmp_path / "powercap"
    folder.mkdir()
    return Powercap(folder)


def test_packages_and_their_memory_count_once(powercap: Powercap) -> None:
    meter = Meter(rapl.counters(powercap.folder), 0.0)
    meter.begin()
    for number, zone in enumerate(["0", "0:0", "0:1", "1", "2", "-mmio:0"]):
        powercap.set(f"intel-rapl:{zone}".replace(":-", "-"), 1000 + 10**number)
    assert meter.end() == 1 + 100 + 1000


def test_counts_begin_again_at_0(powercap: Powercap) -> None:
    powercap.set("intel-rapl:1", MOST - 5)
    meter = Meter(rapl.counters(powercap.folder), 0.0)
    meter.begin()
    powercap.set("intel-rapl:1", 7)
    assert meter.end() == 12


def test_counters_are_read_once_per_period_and_steps_have_the_part_of_their_time(powercap: Powercap) -> None:
    clock = Clock()
    meter = Meter(rapl.counters(powercap.folder), 0.005, clock)

    def uses(count: int, seconds: float) -> None:
        powercap.set("intel-rapl:0", int((powercap.folder / "intel-rapl:0/energy_uj").read_text()) + count)
        clock.now += seconds

    uses(1, 1.0)  # while no step runs
    meter.begin()
    uses(10, 0.004)
    assert meter.end() == 0
    uses(100, 0.0005)
    meter.begin()
    uses(1000, 0.001)
    meter.begin()  # behind the one that runs
    assert meter.end() == round(1110 * 0.005 / 0.0055)
    uses(10_000, 0.006)
    assert meter.end() == 10_000
    told = 0
    for _ in range(100):  # steps that are shorter than a period, and far apart
        meter.begin()
        uses(400, 0.004)
        told += meter.end() or 0
        uses(600, 0.006)
    assert told == pytest.approx(400 * 100, rel=0.02)


def test_a_package_that_vanishes_is_measured_no_more(powercap: Powercap) -> None:
    meter = Meter(rapl.counters(powercap.folder), 0.0)
    meter.begin()
    (powercap.folder / "intel-rapl:1/energy_uj").unlink()
    assert meter.end() is None
    powercap.set("intel-rapl:1", 2000)
    meter.begin()
    assert meter.end() is None


def test_a_gpu_whose_count_falls_is_measured_no_more() -> None:
    gpu = nvml.Gpu(ctypes.CDLL(None), ctypes.c_void_p())
    counts = iter([5000, 6000, 10])
    meter = Meter([SimpleNamespace(read=lambda: next(counts), most=gpu.most)], 0.0)
    meter.begin()
    assert meter.end() is None


def test_one_rank_of_a_machine_measures_its_processors(powercap: Powercap, tmp_path: Path) -> None:
    config = replace(make_config(tmp_path), world_size=2)
    meters = [meter_of(replace(config, rank=rank), powercap.folder) for rank in range(2)]
    for meter in meters:
        assert meter is not None
        meter._period = 0.0
        meter.begin()
    powercap.set("intel-rapl:0", 1009)
    found = [meter.end() for meter in meters if meter is not None]
    assert found == [0, 9]


def test_a_machine_that_does_not_tell_is_not_measured(powercap: Powercap, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    assert meter_of(config, tmp_path / "none") is None
    (powercap.folder / "intel-rapl:0/energy_uj").write_text("")
    assert meter_of(config, powercap.folder) is None


@only_root
def test_counts_that_are_roots_alone(powercap: Powercap, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(tmp_path)
    (powercap.folder / "intel-rapl:1/energy_uj").chmod(0o400)
    caplog.set_level("INFO")
    with other_user(powercap.folder):
        assert meter_of(config, Path()) is None
    assert "the energy of steps is not measured: [Errno 13]" in caplog.text


def test_a_gpu(tmp_path: Path) -> None:
    library, old = tmp_path / "libnvidia-ml.so", tmp_path / "libold.so"
    for path, source in (library, DRIVER), (old, ""):
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source.encode(), check=True)
    meter = Meter([nvml.find("12ab", str(library))], 0.0)
    meter.begin()
    assert meter.end() == 1000
    with pytest.raises(OSError, match="error 6"):
        nvml.find("12ac", str(library))
    with pytest.raises(OSError, match="too old"):
        nvml.find("12ab", str(old))
    with pytest.raises(OSError, match="none"):
        nvml.find("12ab", str(tmp_path / "none"))
