"""The series of groups."""

import os
import subprocess
import sys
from pathlib import Path

LIVES = """
import sys
from pathlib import Path
from penstock.router.metrics.metrics import Metrics
from penstock.router.scheduling.occupancy import Occupancy
from penstock.router.scheduling.wait_reasons import WaitReason
from tests.fakes import LIMITS

for number, waits in (5, {WaitReason.MEMORY: 5}), (0, {}):
    metrics = Metrics(LIMITS, Path(sys.argv[1]), "engine")
    metrics.occupancy("", Occupancy(num_waiting=number, waits=waits))
    sys.stdout.buffer.write(metrics.exposition())
"""
"""Two lives of the engine's process, whose series are in one folder: five requests wait in the first, none after."""


def test_nobody_waits_any_more_for_what_a_lost_process_has_told(tmp_path: Path) -> None:
    text = subprocess.run(
        [sys.executable, "-c", LIVES, tmp_path], check=True, capture_output=True, text=True,
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}).stdout
    assert [line for line in text.splitlines() if line.startswith('penstock_waiting_requests{reason="memory"}')] == [
        'penstock_waiting_requests{reason="memory"} 5.0', 'penstock_waiting_requests{reason="memory"} 0.0']
