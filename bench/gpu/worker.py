"""One process that runs cases of a part. If it dies another one goes on behind the case that it died of."""

import subprocess
import sys
import time
from pathlib import Path

from penstock.bench.gpu.part import CASES_FAILED, POISONED, Part, Place
from penstock.bench.gpu.records import Record, Records
from penstock.bench.gpu.scale import Scale
from penstock.bench.programs.root import ROOT

END_SECONDS = 20.0                       # that a process may take to end what it has started
KILL_SECONDS = 5.0                       # that a killed process may take to end; one that a driver holds never does


class Worker:
    """Runs every `of`-th case of `part` from the `index`-th on. What it says goes into `log`."""

    def __init__(
        self, part: Part, scale: Scale, records: Records, log: Path, end: float, index: int = 0, of: int = 1
    ) -> None:
        """`end` is of time.monotonic(): no case begins behind it."""
        self._part, self._scale, self._records = part, scale, records
        self._log, self._end, self._index, self._of = log, end, index, of
        self._place = Place(records.path.with_name(f"{part.name}-{index}.at"))
        self._first = 0
        self._patience_end = 0.0
        self.is_well = True
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock.bench.gpu.part", self._part.name, self._scale.name,
                   str(self._end - time.monotonic()), str(self._records.path), str(self._index), str(self._of),
                   str(self._first)]
        with self._log.open("a") as output:
            return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)

    def is_done(self) -> bool:
        """Tells whether all its cases are done. Starts another process for the rest of them when one has died."""
        code = self._process.poll()
        if code is None:
            return False
        self.is_well &= code == 0
        if code in (0, CASES_FAILED):
            return True
        number, name = self._place.read()
        begun = number >= self._first
        if code != POISONED:
            last = (self._log.read_text(errors="replace").splitlines() or [""])[-1]
            note = f"the process ended with {code}: {last[:160]}"
            self._records.add(Record(self._part.name, name if begun else "the part", {"note": note}, is_right=False))
        if not begun:
            return True
        self._first = number + 1
        self._process = self._start()
        return False

    def terminate(self) -> None:
        """Asks the process to end, and with it what it has started."""
        self._process.terminate()
        self._patience_end = time.monotonic() + END_SECONDS

    def stop(self) -> str:
        """Waits for the end that was asked for, and kills the process if it does not come; returns the name of the case
        that it was at."""
        try:
            self._process.wait(max(0.0, self._patience_end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            try:
                self._process.wait(KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self.is_well = False
        return self._place.read()[1]

