"""The table of faults, from the records of several runs."""

from pathlib import Path

from tests.faults.report import HEADER, Record, read, table, write

QUIET: dict[str, list[int | None]] = {"/readyz": [200], "/health": [200], "/livez": [200]}


def test_a_line_for_each_kind(tmp_path: Path) -> None:
    records = [Record(1, "shards killed", 10, 0, 2.04, 2.5, {**QUIET, "/readyz": [200, 503]}),
               Record(1, "clients leave", 3, 0, 0.0, 0.2, QUIET),
               Record(2, "shards killed", 12, 1, 4.0, 3.5, {**QUIET, "/health": [None, 200]})]
    write(records[:2], tmp_path / "records")
    write(records[2:], tmp_path / "records")
    assert read(tmp_path / "records") == records
    assert table(records) == "\n".join([
        HEADER,
        "| shards killed | 2 | 22 | 1 | 3.0 (at most 4.0) | 3.0 (at most 3.5) | 503 | no answer | 200 |",
        "| clients leave | 1 | 3 | 0 | none | 0.2 (at most 0.2) | 200 | 200 | 200 |"])
