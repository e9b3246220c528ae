"""The files that the benchmark leaves behind: a report, the figures, the logs in one archive, and where it
tuned the configurations that won, which kernels/tuned/ is to have under the GPU's name."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from penstock.bench.gpu.part import PARTS
from penstock.bench.gpu.records import TUNED, Records, table
from penstock.bench.gpu.scale import Scale
from penstock.bench.gpu.targets import targets

REPORT, FIGURES, LOGS = "report.md", "figures.json", "logs.zip"


class Report:
    """Writes into `out` what `records` have, and the logs that lie beside them."""

    def __init__(self, out: Path, records: Records, scale: Scale) -> None:
        self._out, self._records, self._scale = out, records, scale
        out.mkdir(parents=True, exist_ok=True)

    def write(self) -> None:
        """Writes all files anew."""
        (self._out / REPORT).write_text("\n".join(self._lines()) + "\n")
        figures = [asdict(record) for record in self._records]
        (self._out / FIGURES).write_text(json.dumps(figures, indent=1))
        with ZipFile(self._out / LOGS, "w", ZIP_DEFLATED) as archive:
            for log in sorted(self._records.path.parent.glob("*.log")):
                archive.write(log, log.name)
        if (tuned := self._records.path.with_name(TUNED)).exists():
            (self._out / TUNED).write_bytes(tuned.read_bytes())

    def _lines(self) -> Iterator[str]:
        everything = list(self._records)
        for part in PARTS.values():
            own = [record for record in everything if record.part == part.name]
            if part.workers > 1:
                own.sort(key=lambda record: record.name)
            if own:
                yield from ("", f"## {part.title}", "", *([part.legend, ""] if part.legend else []), *table(own))
        if self._scale.name != "tiny":
            judged = [target.judge(self._records) for target in targets(self._scale)]
            yield from ("", "## Targets", "", *table(judged))
        wrong = [f"{record.part}: {record.name}" for record in everything if record.is_right is False]
        yield from ("", f"Wrong or failed: {', '.join(wrong) or 'nothing'}")
