"""Figures as the parts find them: a line of JSON each in one file, so that they outlive a part that dies."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TUNED = "tuned.json"
"""The file beside the records into which tuning puts what won."""


@dataclass(frozen=True)
class Record:
    """A row of the table of `part`, with its `values` by column. `is_right` is None where nothing was checked."""

    part: str
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    is_right: bool | None = None


class Records:
    """The file of one run of the benchmark, that each part reads and adds to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: Record) -> None:
        """Adds a line. It begins with the end of the one before, which a process that died may not have written."""
        with self.path.open("a") as file:
            file.write("\n" + json.dumps(asdict(record), default=str))

    def __iter__(self) -> Iterator[Record]:
        """Yields all that were written whole."""
        if self.path.exists():
            for line in filter(None, self.path.read_text(errors="replace").splitlines()):
                with suppress(json.JSONDecodeError):
                    yield Record(**json.loads(line))

    def find(self, part: str, name: str, column: str) -> float:
        """Returns the newest of these figures; NaN if there is none."""
        found = [record.values[column] for record in self
                 if (record.part, record.name) == (part, name) and column in record.values]
        return float(found[-1]) if found else math.nan


def show(value: Any) -> str:
    """Returns a table's cell, with three significant digits."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:.2e}"


def table(records: list[Record]) -> Iterator[str]:
    """Yields the records of one part as Markdown: columns as they first come, lists left out."""
    columns = list(dict.fromkeys(column for record in records for column, value in record.values.items()
                                 if not isinstance(value, list)))
    rows = [["", *columns]] + [
        [record.name, *(show(record.values.get(column, "")) for column in columns)] for record in records]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = (cell.ljust(width) if index == 0 else cell.rjust(width)
                 for index, (cell, width) in enumerate(zip(row, widths, strict=True)))
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"
